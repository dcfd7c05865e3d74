"""All bindings of all screens and dialogs, for the keymap's check and the documentation."""

from __future__ import annotations

from collections.abc import Mapping

from textual.binding import Binding
from textual.dom import DOMNode

from .keymap import APP_BINDINGS, shared_keys


def binding_owners() -> tuple[type[DOMNode], ...]:
    """Every screen, dialog and widget with bindings that have ids."""
    from .screens.add_host import AddHostScreen
    from .screens.apply import ApplyScreen
    from .screens.choose import ChooseScreen
    from .screens.command_log import CommandLogScreen
    from .screens.compare import CompareScreen
    from .screens.configure import ConfigurePane
    from .screens.confirm import ConfirmScreen
    from .screens.dashboard import DashboardPane
    from .screens.dialog import Dialog
    from .screens.host_key import HostKeyScreen
    from .screens.hosts import HostsPane
    from .screens.logs import LogsPane
    from .screens.plan import PlanScreen
    from .screens.playground import PlaygroundPane
    from .screens.profiles import ProfilesScreen
    from .screens.suites import SuiteScreen
    from .screens.tree import TreeScreen
    from .screens.truth import TruthPane
    from .screens.unfinished import UnfinishedScreen
    from .widgets.field import LeavingInput
    from .widgets.prompt_editor import PromptEditor
    from .widgets.toggle import Toggle

    return (
        DashboardPane,
        ConfigurePane,
        TruthPane,
        LogsPane,
        PlaygroundPane,
        HostsPane,
        LeavingInput,
        Toggle,
        PromptEditor,
        Dialog,
        ConfirmScreen,
        PlanScreen,
        ApplyScreen,
        UnfinishedScreen,
        ProfilesScreen,
        HostKeyScreen,
        AddHostScreen,
        ChooseScreen,
        SuiteScreen,
        CompareScreen,
        TreeScreen,
        CommandLogScreen,
    )


def all_bindings() -> list[Binding]:
    """Every binding that has an id, the application's first."""
    bindings = [binding for binding in APP_BINDINGS if isinstance(binding, Binding)]
    for owner in binding_owners():
        bindings += [binding for binding in owner.BINDINGS if isinstance(binding, Binding)]
    return bindings


def keymap_problems(keymap: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each entry of the keymap that names no action, and for each key that it gives to two actions of one screen
    or dialog, what that inherits among them: one of the two would do the other's work, or close nothing any more."""
    if not keymap:
        return ()
    known = {binding.id for binding in all_bindings()}
    problems = [f"keymap: there is no action {name}; ? lists them" for name in keymap if name not in known]
    for owner in binding_owners():
        bases = (base for base in owner.__mro__ if base.__module__.startswith(__package__ or ""))
        bindings = [binding for base in bases for binding in vars(base).get("BINDINGS", ()) if isinstance(binding, Binding)]
        problems += shared_keys(keymap, bindings)
    return tuple(dict.fromkeys(problems))

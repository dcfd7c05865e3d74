"""All bindings of all screens and dialogs, for the keymap's check and the documentation."""

from __future__ import annotations

from textual.binding import Binding

from .keymap import APP_BINDINGS


def all_bindings() -> list[Binding]:
    """Every binding that has an id, the application's first."""
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

    owners = (
        DashboardPane.BINDINGS,
        ConfigurePane.BINDINGS,
        TruthPane.BINDINGS,
        LogsPane.BINDINGS,
        PlaygroundPane.BINDINGS,
        HostsPane.BINDINGS,
        LeavingInput.BINDINGS,
        Toggle.BINDINGS,
        PromptEditor.BINDINGS,
        Dialog.BINDINGS,
        ConfirmScreen.BINDINGS,
        PlanScreen.BINDINGS,
        ApplyScreen.BINDINGS,
        UnfinishedScreen.BINDINGS,
        ProfilesScreen.BINDINGS,
        HostKeyScreen.BINDINGS,
        AddHostScreen.BINDINGS,
        ChooseScreen.BINDINGS,
        SuiteScreen.BINDINGS,
        CompareScreen.BINDINGS,
        TreeScreen.BINDINGS,
        CommandLogScreen.BINDINGS,
    )
    bindings = [binding for binding in APP_BINDINGS if isinstance(binding, Binding)]
    for owner in owners:
        bindings += [binding for binding in owner if isinstance(binding, Binding)]
    return bindings

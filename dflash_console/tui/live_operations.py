"""Plans and operations on the real host. Failures of an operation are verdicts; only what prevents it is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..apply import (
    ApplyResult,
    PendingOperation,
    apply_plan,
    carry_out_roll_back,
    pending_operations,
    plan_rebase,
    plan_release,
    plan_roll_back,
    restart_service,
    resume,
    start_service,
    stop_service,
)
from ..hosts.transport import HostError
from ..plan import Change, Mode, Plan, PlanError
from ..session import HostSession
from .link import ApplyChoices, Control, LinkError, OnStage

if TYPE_CHECKING:
    from ..knobs import Value


class LiveOperations:
    """What the screens ask to be done, done by the spine."""

    def __init__(self, session: HostSession) -> None:
        self._session = session

    async def plan(self, settings: Mapping[str, Value], mode: Mode, *, persist: bool, commit_confirm: bool) -> Plan:
        """Raises: LinkError: no plan can be made."""
        try:
            return await self._session.plan(Change(dict(settings), mode, persist, commit_confirm))
        except (PlanError, HostError) as error:
            raise LinkError(str(error)) from None

    async def plan_drop_in(self, *, release: bool) -> Plan:
        """Raises: LinkError: there is no drop-in of the console's, nothing to carry over, or both changed the same words."""
        try:
            return await (plan_release(self._session) if release else plan_rebase(self._session))
        except (PlanError, HostError) as error:
            raise LinkError(str(error)) from None

    async def plan_roll_back(self) -> Plan:
        """Raises: LinkError: no plan can be made, or no earlier configuration is known."""
        try:
            plan = await plan_roll_back(self._session)
            if plan is not None:
                return plan
            # There is nothing to show or to change; what was cut off and has left nothing is not asked about again.
            result = await carry_out_roll_back(self._session, None)
        except (PlanError, HostError) as error:
            raise LinkError(str(error)) from None
        raise LinkError(result.reason)

    async def apply(self, plan: Plan, choices: ApplyChoices, on_stage: OnStage) -> ApplyResult:
        """Raises: LinkError: the operation could not even begin."""
        try:
            return await apply_plan(
                self._session,
                plan,
                rollback_on_failure=choices.rollback_on_failure or None,
                drain=choices.drain or None,
                on_event=on_stage,
            )
        except HostError as error:
            raise LinkError(str(error)) from None

    async def roll_back(self, plan: Plan, choices: ApplyChoices, on_stage: OnStage) -> ApplyResult:
        """Raises: LinkError: the operation could not even begin."""
        try:
            return await carry_out_roll_back(self._session, plan, drain=choices.drain, on_event=on_stage)
        except HostError as error:
            raise LinkError(str(error)) from None

    async def control(self, control: Control, on_stage: OnStage) -> ApplyResult:
        """Raises: LinkError: the operation could not even begin."""
        try:
            match control:
                case Control.START:
                    return await start_service(self._session, on_event=on_stage)
                case Control.RESTART:
                    return await restart_service(self._session, on_event=on_stage)
                case Control.STOP:
                    return await stop_service(self._session, on_event=on_stage)
                case Control.RESUME:
                    return await resume(self._session, self._unfinished(), on_event=on_stage)
        except (HostError, PlanError) as error:
            raise LinkError(str(error)) from None

    def pending(self) -> str:
        """The newest unfinished operation in a sentence; empty when there is none."""
        found = self._found()
        return found[-1].words if found else ""

    def _found(self) -> tuple[PendingOperation, ...]:
        return pending_operations(self._session.paths, self._session.host, self._session.unit)

    def _unfinished(self) -> PendingOperation:
        found = self._found()
        if not found:
            raise LinkError("There is no unfinished operation any more.")
        return found[-1]

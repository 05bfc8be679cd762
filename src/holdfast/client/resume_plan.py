"""The plan of a move to another framework: what `client.resume_as` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.backends.bridge.step import run_inline
from holdfast.operations import validate

if TYPE_CHECKING:
    from holdfast.client.factory import ClientBase
    from holdfast.model.conversation import TranscriptMessage
    from holdfast.model.loss import Loss
    from holdfast.operations.resume_as import MovePlan


class ResumePlan:
    """A conversation that is ready to continue in another framework. Nothing is written until `save`."""

    def __init__(self, client: ClientBase, plan: MovePlan) -> None:
        self._client = client
        self._plan = plan

    @property
    def framework(self) -> str:
        """The name of the target."""
        return self._plan.target.name

    @property
    def source_id(self) -> str:
        """The checkpoint that is converted."""
        return self._plan.source.checkpoint.checkpoint_id

    @property
    def losses(self) -> Sequence[Loss]:
        """What is lost, measured: kind, path, what, severity ("cosmetic", "content" or "meaning")."""
        return self._plan.losses

    @property
    def messages(self) -> Sequence[TranscriptMessage]:
        """The conversation as the target will have it."""
        return self._plan.messages

    @property
    def instructions(self) -> Sequence[str]:
        """The source's instructions, which are kept as metadata."""
        return self._plan.instructions

    @property
    def renamed(self) -> Mapping[str, str]:
        """The ids of calls and the names of tools and agents that were replaced, by the old ones."""
        return self._plan.renamed

    @property
    def native_id(self) -> str | None:
        """The checkpoint of the target's own earlier state that is continued, if there is one."""
        return None if self._plan.native is None else self._plan.native.checkpoint_id

    async def save(self, agent_id: str, session_id: str | None = None) -> str:
        """Make a new session in the same tree, whose first checkpoint is of the target; return its name.

        The source is untouched. The target continues with its own verb, such as
        `holdfast.crewai.resumable(agent, session_id=name)`. A thread of LangGraph is named
        `lg/<thread_id>`. With a `session_id`, a repeated call with the same plan is a no-op.
        """
        return await self._save(agent_id, session_id)

    async def _save(self, agent_id: str, session_id: str | None) -> str:
        from holdfast import __version__
        from holdfast.client.adapters import load_transcripts
        from holdfast.client.conversion_targets import prefix_of
        from holdfast.operations import resume_as

        return await resume_as.save_move(
            self._client._ctx,
            self._plan,
            load_transcripts,
            agent_id=validate.agent_of_save(agent_id),
            session_id=validate.optional_name("session_id", session_id),
            version=__version__,
            origin=self._client._origin(),
            source_prefix=prefix_of(self._plan.source.checkpoint.framework),
        )

    def __repr__(self) -> str:
        counted = ", ".join(f"{count} {severity}" for severity, count in self._count_losses().items()) or "none"
        return (
            f"<ResumePlan {self.source_id[-8:]} to {self.framework}: {len(self.messages)} messages, losses: {counted}>"
        )

    def _count_losses(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for loss in self.losses:
            found[str(loss.severity)] = found.get(str(loss.severity), 0) + 1
        return found


class SyncResumePlan(ResumePlan):
    """`ResumePlan` without `await`."""

    def save(self, agent_id: str, session_id: str | None = None) -> str:  # type: ignore[override]  # without await
        return run_inline(self._save(agent_id, session_id))


SyncResumePlan.save.__doc__ = ResumePlan.save.__doc__

"""`HoldfastArtifactService`: ADK's artifacts in a store of holdfast; each version is a checkpoint."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

from google.adk.artifacts.base_artifact_service import ArtifactVersion, BaseArtifactService, ensure_part
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

from holdfast.adapters.base.store_access import SeamStore
from holdfast.adapters.google_adk.event import dump_model, to_plain
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework

PREFIX = "adk-artifact"
USER = "user:"
_PART = "part"


class HoldfastArtifactService(BaseArtifactService):
    """Artifacts for `Runner(artifact_service=HoldfastArtifactService())`.

    `store` is a `Client`, a URL, or None for `.holdfast/store.db`. A version that does not change is
    stored once. `close` closes a store that was opened here.
    """

    def __init__(self, store: Any = None) -> None:
        self._store = SeamStore(store)

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        part = ensure_part(artifact)
        if part.inline_data is None and part.text is None and part.file_data is None:
            raise InputValidationError("Not supported artifact type.")
        name = _session_of(app_name, user_id, session_id, filename)
        state = {_PART: dump_model(part)}
        id_ = await self._store.client.save(
            app_name,
            Framework.GOOGLE_ADK,
            state,
            session_id=name,
            step_name=filename[:100],
            mime_type=_mime_type(part),
            custom=to_plain(custom_metadata or {}),
        )
        return int((await self._store.client.get(id_)).step_index)

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        found = await self._find(_session_of(app_name, user_id, session_id, filename), version)
        if found is None:
            return None
        checkpoint = await self._store.client.restore(found.checkpoint_id)
        return types.Part.model_validate(checkpoint.execution_state[_PART])

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        scopes = [_session_of(app_name, user_id, None, USER)]
        if session_id is not None:
            scopes.append(_session_of(app_name, user_id, session_id, ""))
        client = self._store.client
        names = [name for scope in scopes for name in await client.session_ids(scope)]
        return sorted([unquote(name.rpartition("/")[2]) for name in names if await client.session(name) is not None])

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        for version in await self._versions(_session_of(app_name, user_id, session_id, filename)):
            await self._store.client.expire(version.checkpoint_id)

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        found = await self._versions(_session_of(app_name, user_id, session_id, filename))
        return [int(version.step_index or 0) for version in found]

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        found = await self._versions(_session_of(app_name, user_id, session_id, filename))
        return [_describe(version) for version in found]

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        found = await self._find(_session_of(app_name, user_id, session_id, filename), version)
        return None if found is None else _describe(found)

    async def close(self) -> None:
        await self._store.aclose()

    async def _versions(self, name: str) -> list[Checkpoint]:
        found: list[Checkpoint] = await self._store.client.timeline(name, limit=None)
        return found[::-1]

    async def _find(self, name: str, version: int | None) -> Checkpoint | None:
        found = await self._versions(name)
        wanted = [checkpoint for checkpoint in found if version is None or checkpoint.step_index == version]
        return wanted[-1] if wanted else None


def _session_of(app_name: str, user_id: str, session_id: str | None, filename: str) -> str:
    """Return the session of an artifact. A file name that begins with "user:" belongs to the user."""
    if filename.startswith(USER):
        scope = "user"
    elif session_id is None:
        raise InputValidationError("Session ID must be provided for session-scoped artifacts.")
    else:
        scope = f"session/{quote(session_id, safe='')}"
    return "/".join([PREFIX, quote(app_name, safe=""), quote(user_id, safe=""), scope, quote(filename, safe="")])


def _mime_type(part: types.Part) -> str | None:
    if part.text is not None:
        return "text/plain"
    data = part.inline_data or part.file_data
    return None if data is None else data.mime_type


def _describe(version: Checkpoint) -> ArtifactVersion:
    return ArtifactVersion(
        version=version.step_index or 0,
        canonical_uri=f"holdfast:{version.checkpoint_id}",
        custom_metadata=dict(version.metadata.get("custom", {})),
        create_time=version.created_at.timestamp(),
        mime_type=version.metadata.get("mime_type"),
    )

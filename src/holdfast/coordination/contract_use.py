"""Contracts at a handoff: what is sent by one, and how it is read by another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.coordination.contract import DECLARED, Contract, accepts
from holdfast.errors import ContractError, CorruptError, UsageError
from holdfast.format.rows.contract import StoredContract, split_label
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.contract_schema import canonical_text
from holdfast.model.message import Message
from holdfast.operations import contract as registered
from holdfast.operations import restore as restoring
from holdfast.operations.context import StoreContext
from holdfast.operations.publish import PlainMessage


class Delivery(NamedTuple):
    """What a handoff carries, as its reader's contract gives it: the value, and unknown fields."""

    value: Any
    extra: dict[str, Any]


def projection(contract: Contract[Any], view: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Return the function that makes the value to be handed over of a state."""

    def project(state: Any) -> Any:
        return contract.encode(contract.project(state if view is None else view(state)))

    return project


async def register(ctx: StoreContext, contract: Contract[Any]) -> None:
    """Register a contract in the store at its first use; raise if another schema has its version."""
    await registered.register(ctx, contract.name, contract.version, canonical_text(contract.schema), contract.hash)


async def read_handoff(ctx: StoreContext, handoff: StoredRecord, contract: Contract[Any]) -> Delivery:
    """Return what a handoff carries; raise `ContractError` if the contract can't read it."""
    label = handoff.header.get("toschema")
    where = f"handoff {ids.to_text(handoff.id)}"
    sent = split_label(label) if isinstance(label, str) else None
    if sent is None:
        raise ContractError(
            f"{where} was made without a contract (its schema is {label!r:.60}): claim it without contract=, and read "
            "claim.checkpoint"
        )
    name, version = sent
    if name != contract.name:
        raise ContractError(
            f"{where} carries a {label}, and is claimed with contract {contract.label}: claim it with a version of "
            f"{name!r:.60}, or without contract="
        )
    await register(ctx, contract)
    # The value is of a version of the contract, not of the agent's state: migrations are for the latter.
    checkpoint = await restoring.load_checkpoint(ctx, handoff, migrate=False)
    return Delivery(*await _decode(ctx, contract, checkpoint.execution_state, version))


async def read_answer(ctx: StoreContext, plain: Any, label: str | None, contract: Contract[Any]) -> Any:
    """Return an answer as the class of the contract; raise `ContractError` if the contract can't read it."""
    sent = split_label(label) if label is not None else None
    if sent is None or sent[0] != contract.name:
        raise ContractError(f"the answer is a {label!r:.60}, and {contract.label} was agreed on")
    return (await _decode(ctx, contract, plain, sent[1]))[0]


async def read_message(ctx: StoreContext, stored: StoredRecord, contract: Contract[Any] | None) -> Any:
    """Return the value of a message, as the class of the contract if one is given."""
    plain = (await restoring.load_checkpoint(ctx, stored, migrate=False)).execution_state
    if contract is None:
        return plain
    label = stored.header.get("toschema")
    sent = split_label(label) if isinstance(label, str) else None
    if sent is None or sent[0] != contract.name:
        sent_as = "without a contract" if label is None else f"as {label!r:.60}"
        raise ContractError(
            f"message {ids.to_text(stored.id)} was published {sent_as}, and is read as {contract.label}. Give the "
            "topic one contract"
        )
    return (await _decode(ctx, contract, plain, sent[1]))[0]


async def encode_message(ctx: StoreContext, message: Message) -> PlainMessage:
    """Return a message with its value as plain data, checked by its contract."""
    contract = message.contract
    if contract is None:
        return PlainMessage(message, message.value, None)
    plain = contract.encode(message.value)
    await register(ctx, contract)
    return PlainMessage(message, plain, contract.label)


async def encode_answer(
    ctx: StoreContext, result: Any, agreed: str | None, contract: Contract[Any] | None
) -> tuple[Any, str | None]:
    """Return a result as plain data, checked by its contract, and the contract's label.

    Without a contract of its own, the worker's result is checked by the one that was agreed on:
    as its program declares it, or by the schema in the store.
    """
    sent = split_label(agreed) if agreed is not None else None
    if contract is None and sent is not None:
        contract = DECLARED.find(*sent) or await _stored_contract(ctx, *sent)
    if contract is None:
        return result, None
    if sent is not None and sent[0] != contract.name:
        raise ContractError(
            f"the result is declared as a {contract.label}, and {agreed} was agreed on. Nothing was sent"
        )
    await register(ctx, contract)
    return contract.encode(result), contract.label


async def _stored_contract(ctx: StoreContext, name: str, version: int) -> Contract[Any]:
    stored = await registered.find(ctx, name, version)
    if stored is None:
        raise ContractError(f"contract {name}@{version} was agreed on, and is not in this store: declare it")
    return Contract(name, version, registered.read_schema(stored, name, version), None)


async def _decode(ctx: StoreContext, contract: Contract[Any], plain: Any, version: int) -> tuple[Any, dict[str, Any]]:
    is_proven = version > contract.version and await _is_compatible(ctx, contract, version)
    return contract.decode(plain, version=version, is_proven=is_proven)


async def _is_compatible(ctx: StoreContext, contract: Contract[Any], version: int) -> bool:
    """Return whether this version accepts everything that a newer one sends, by its registered schema."""
    stored = await registered.find(ctx, contract.name, version)
    if stored is None:
        return False
    place = contract.hash, stored.schema
    if place not in ctx.compatible:
        ctx.compatible[place] = _accepts(contract, stored, version)
    return ctx.compatible[place]


def _accepts(contract: Contract[Any], stored: StoredContract, version: int) -> bool:
    try:
        return accepts(contract, registered.read_schema(stored, contract.name, version)) is None
    except (UsageError, CorruptError):  # a schema of a stranger, or of a newer holdfast
        return False

"""Ids: derived from identity, one spelling, no part that imitates two."""

import uuid
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadlog import ids
from threadlog.ids import EventId, Seq, TenantId, ThreadId, WorkerId

NAMESPACE = uuid.UUID(bytes=ids._NAMESPACE)
T1, T2 = TenantId("a"), TenantId("b")
W = WorkerId("w")


def test_a_derived_id_is_a_uuid5() -> None:
    """The standard library is the oracle."""
    for parts in (("a",), ("a", 1), ("", "é", "x" * 500)):
        name = "".join(f"{len(str(p))}:{p}" for p in parts)
        assert ids.derive(*parts) == str(uuid.uuid5(NAMESPACE, name))


def test_derived_ids_are_recorded() -> None:
    """They are in logs for ever: a change of the derivation would break every retry."""
    thread = ids.new_thread_id(T1, "k")
    turn = ids.turn_id(thread, 1)
    assert [
        thread,
        turn,
        ids.input_id(T1, thread, "message.send", "k"),
        ids.claim_id(turn, 1, 1, W, Seq(3)),
        ids.call_id(EventId(turn), 0),
        ids.caused_id(turn, "turn.finished", 0),
    ] == RECORDED


RECORDED = [
    "18966eb5-27fc-57ad-9b33-df90503e6692",
    "f04baa90-2a8c-5d2d-a47d-e12e947737f0",
    "0568dca9-2997-54c2-bc1c-28e949d756fc",
    "5af8f219-ec6a-5895-9503-a432aa0ab08b",
    "2e81f84e-ea81-5231-aaaa-125afa80ead3",
    "82193aab-f92e-51e8-8105-bea497c8cc0a",
]


@given(st.lists(st.text(max_size=6), max_size=4), st.lists(st.text(max_size=6), max_size=4))
def test_equal_parts_and_no_others_give_an_equal_id(a: list[str], b: list[str]) -> None:
    assert (ids.derive(*a) == ids.derive(*b)) == (a == b)


def test_parts_do_not_run_together() -> None:
    assert ids.derive("ab", "c") != ids.derive("a", "bc") != ids.derive("abc")
    assert ids.derive("1:a") != ids.derive("a")
    assert ids.derive() != ids.derive("")


def test_what_is_remembered_keeps_equal_values_of_two_types_apart() -> None:
    assert ids.derive("a", 1) == ids.derive("a", "1") != ids.derive("a", True)
    assert ids.derive("a", True) == ids.derive("a", "True")


def test_every_part_of_an_identity_counts() -> None:
    thread, other = ids.new_thread_id(T1, "k"), ids.new_thread_id(T2, "k")
    claims = {
        ids.claim_id(subject, number, attempt, WorkerId(worker), Seq(decided_at))
        for subject, number, attempt, worker, decided_at in product(
            ("s", "t"), (0, 1), (1, 2), ("v", "w"), (3, 4)
        )
    }
    assert len(claims) == 32
    inputs = {
        ids.input_id(tenant, thread_id, operation, key, ordinal)
        for tenant, thread_id, operation, key, ordinal in product(
            (T1, T2), (thread, other), ("o", "p"), ("k", "l"), (0, 1)
        )
    }
    assert len(inputs) == 32
    assert len({ids.caused_id(c, k, *p) for c in "ab" for k in "xy" for p in ((), (1,))}) == 8


def test_a_turn_s_id_is_its_number_in_its_thread() -> None:
    thread = ThreadId("t")
    assert len({ids.turn_id(thread, n) for n in range(50)}) == 50
    assert ids.turn_id(thread, 1) != ids.turn_id(ThreadId("u"), 1)


def test_a_drawn_id_is_new_and_canonical() -> None:
    drawn = {ids.draw() for _ in range(20)}
    assert len(drawn) == 20
    assert all(ids.is_uuid(text) for text in drawn)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000-0000-0000-0000-000000000000", True),
        (ids.derive("x"), True),
        (ids.derive("x").upper(), False),
        ("{" + ids.derive("x") + "}", False),
        ("urn:uuid:" + ids.derive("x"), False),
        (ids.derive("x").replace("-", ""), False),
        (ids.derive("x") + "\n", False),
        ("\u0661" + ids.derive("x")[1:], False),
        ("", False),
    ],
)
def test_a_uuid_has_one_spelling(text: str, expected: bool) -> None:
    """RELIABILITY C28, C29."""
    assert ids.is_uuid(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("local", True),
        ("a", True),
        ("0-9", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("-a", False),
        ("A", False),
        ("a/b", False),
        ("a\n", False),
        ("é", False),
        ("", False),
    ],
)
def test_a_tenant_has_one_alphabet(text: str, expected: bool) -> None:
    assert ids.is_tenant(text) == expected


@given(st.binary(min_size=16, max_size=16))
def test_bytes_have_one_text(packed: bytes) -> None:
    assert ids.uuid_text(packed) == str(uuid.UUID(bytes=packed))

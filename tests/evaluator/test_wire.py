"""Messages over a socket: what goes in comes out, and nothing a stranger writes does harm."""

from __future__ import annotations

import json
import os
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.evaluator.transport.wire import MAX_MESSAGE, Channel, WireClosed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture
def pair():
    ours, theirs = Channel.pair()
    ours.sock.settimeout(10)
    yield ours, theirs
    ours.close()
    theirs.close()


@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_an_object_arrives_as_it_was_sent(message):
    ours, theirs = Channel.pair()
    theirs.send(message)
    assert ours.receive() == (message, [])
    ours.close()
    theirs.close()


def test_messages_keep_their_order_and_borders(pair):
    ours, theirs = pair
    for index in range(50):
        theirs.send({"index": index, "text": "x" * index})
    assert [ours.receive()[0]["index"] for _ in range(50)] == list(range(50))


def test_a_message_larger_than_the_socket_buffer_arrives_whole(pair):
    ours, theirs = pair
    text = "abc" * 1_000_000
    sender = threading.Thread(target=theirs.send, args=({"text": text},))
    sender.start()
    assert ours.receive()[0]["text"] == text
    sender.join()


def test_descriptors_travel_beside_the_message(pair):
    ours, theirs = pair
    reader, writer = os.pipe()
    theirs.send({"what": "a pipe"}, (reader, writer))
    message, fds = ours.receive()
    assert message == {"what": "a pipe"}
    assert len(fds) == 2
    assert not {reader, writer} & set(fds)
    os.write(fds[1], b"through")
    assert os.read(reader, 7) == b"through"
    for fd in (reader, writer, *fds):
        os.close(fd)


@pytest.mark.parametrize(
    "body", [b"", b"not json", b"[1, 2]", b'"text"', b"\xff\xfe", b"nul", b'{"a": ', b"[" * 200_000]
)
def test_what_is_not_a_json_object_closes_the_conversation(pair, body):
    ours, theirs = pair
    writer = threading.Thread(target=theirs.sock.sendall, args=(struct.pack("!I", len(body)) + body,))
    writer.start()
    with pytest.raises(WireClosed):
        ours.receive()
    writer.join()


def test_an_announced_giant_is_refused_before_it_is_read(pair):
    ours, theirs = pair
    theirs.sock.sendall(struct.pack("!I", MAX_MESSAGE + 1))
    with pytest.raises(WireClosed, match="limit"):
        ours.receive()


def test_half_a_message_and_then_silence_is_the_end_of_the_stream(pair):
    ours, theirs = pair
    body = json.dumps({"id": 1}).encode()
    theirs.sock.sendall(struct.pack("!I", len(body)) + body[:3])
    theirs.close()
    with pytest.raises(WireClosed):
        ours.receive()


def test_sending_to_nobody_is_an_end_and_not_a_signal(pair):
    ours, theirs = pair
    theirs.close()
    with pytest.raises(WireClosed):
        ours.send({"text": "x" * 1_000_000})


def test_waiting_has_an_end(pair):
    ours, theirs = pair
    ours.sock.settimeout(0.05)
    theirs.sock.sendall(b"\x00\x00")
    with pytest.raises(TimeoutError):
        ours.receive()

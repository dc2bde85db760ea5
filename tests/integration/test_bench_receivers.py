"""The receivers of the benchmark."""

import socket

from bench.receivers import receivers


def test_an_answer_of_many_arrivals_ended_half_way() -> None:
    # more than a pipe holds
    number = 40_000
    with receivers(1) as listening, socket.create_connection(("127.0.0.1", listening.ports[0])) as sender:
        for nth in range(number):
            body = b'{"number":["%d"]}' % nth
            sender.sendall(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
            assert sender.recv(4096).startswith(b"HTTP/1.1 200")

        assert [len(listening.arrivals()) for _ in range(5)] == [number] * 5

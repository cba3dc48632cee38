# Asks the other machine over a network that loses, repeats, reorders and damages packets.
import random
import socket
import threading
import time

OTHER = ("10.9.0.1", 7)
chance = random.Random(1)


def dropped():
    """Packets that did not arrive at the device."""
    for line in open("/proc/net/dev"):
        if line.strip().startswith("eth0:"):
            return int(line.split(":")[1].split()[3])
    return 0


# Datagrams of several packets: each comes back whole and as it was, or not at all.
asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asker.settimeout(0.3)
sent, whole = {}, 0
end = time.monotonic() + 240
while whole < 12:
    assert time.monotonic() < end, f"only {whole} datagrams of {len(sent)} came back"
    number = len(sent)
    data = number.to_bytes(4, "big") + chance.randbytes(chance.choice([3000, 6000, 9000]))
    sent[number] = data
    asker.sendto(data, OTHER)
    try:
        answer = asker.recv(65536)
    except TimeoutError:
        continue
    assert sent[int.from_bytes(answer[:4], "big")] == answer, "a datagram was changed"
    whole += 1
print("datagrams in fragments")

# A stream: every byte comes back, in order.
data = chance.randbytes(512 << 10)
stream = socket.create_connection(OTHER, 300)
writer = threading.Thread(target=lambda: (stream.sendall(data), stream.shutdown(socket.SHUT_WR)))
writer.start()
back = b""
while part := stream.recv(65536):
    back += part
writer.join()
assert back == data, f"{len(back)} bytes came back, others than {len(data)} that were sent"
assert dropped() > 0, "no packet was lost"
print("a stream")

# The loopback interface loses nothing.
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
receiver.settimeout(10)
for number in range(1000):
    asker.sendto(number.to_bytes(4, "big"), receiver.getsockname())
    assert int.from_bytes(receiver.recv(4), "big") == number
print("loopback")

# Tell the other machine to end. Its answer may get lost when it is gone already.
with socket.create_connection(OTHER, 60) as last:
    last.settimeout(5)
    try:
        last.recv(1)
    except TimeoutError:
        pass

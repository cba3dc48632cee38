# Sends back datagrams and a stream, as long as the other machine wants.
import socket
import threading

datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("10.9.0.1", 7))
streams = socket.create_server(("10.9.0.1", 7))


def echo():
    while True:
        data, sender = datagrams.recvfrom(65536)
        datagrams.sendto(data, sender)


threading.Thread(target=echo, daemon=True).start()
print("ready", flush=True)
stream, _ = streams.accept()
with stream:
    while data := stream.recv(65536):
        stream.sendall(data)
# Ends when the other machine is done, which it says by another connection.
streams.settimeout(300)
last, _ = streams.accept()
last.sendall(b"!")

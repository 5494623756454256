"""A network of its own, in which names change their addresses.

Runs in namespaces of its own (user, network, mounts). Has an outer address and loopback, a server at each that counts its connections, and
a DNS server that is told for each name what it answers to the first look-up and to later ones. Then calls Toolhold, and prints what it said
and who was connected to.
"""

import fcntl, json, os, socket, struct, subprocess, sys, threading, time

toolhold, work = sys.argv[1:]
OUTER, PORT = "93.184.216.34", 8080

control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for name, address in ((b"lo", None), (b"lo:1", OUTER)):
    if address:
        fcntl.ioctl(control, 0x8916, struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(address)))
    flags = struct.unpack("16sh", fcntl.ioctl(control, 0x8913, struct.pack("16sh", name, 0)))[1]
    fcntl.ioctl(control, 0x8914, struct.pack("16sh", name, flags | 1))

for file, text in (("resolv.conf", "nameserver 127.0.0.1\noptions timeout:2 attempts:1\n"), ("hosts", ""), ("nsswitch.conf", "hosts: dns\n")):
    path = os.path.join(work, file)
    with open(path, "w") as made:
        made.write(text)
    if os.path.exists("/etc/" + file):
        subprocess.run(["mount", "--bind", path, os.path.realpath("/etc/" + file)], check=True)

# By name: what each look-up gets, the last one for all later ones: addresses, or the name that it stands for.
ANSWERS = {
    "steady": [[OUTER]],
    "moves": [[OUTER], ["127.0.0.1"]],
    "mixed": [[OUTER, "127.0.0.1"]],
    "six": [["::1"]],
    "mapped": [["::ffff:127.0.0.1"]],
    "both": [[OUTER, "::1"]],
    "alias": [["localhost."]],
    "led": [["127.0.0.1"]],
    "zero": [["0.0.0.0"]],
}
looked, connected = {}, {"outer": [], "inner": []}


def name_of(packet, at):
    labels = []
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode())
        at += 1 + packet[at]
    return labels, at + 1


def encoded(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.rstrip(".").split(".")) + b"\0"


def serve_names(server):
    while True:
        packet, peer = server.recvfrom(4096)
        labels, end = name_of(packet, 12)
        kind = struct.unpack(">H", packet[end : end + 2])[0]
        key = (labels[0].lower(), kind)
        looked[key] = looked.get(key, 0) + 1
        answers = ANSWERS.get(key[0], [[]])
        records = []
        for entry in answers[min(looked[key], len(answers)) - 1]:
            if entry.endswith("."):
                records.append((5, encoded(entry)))
                records.append((1, socket.inet_aton("127.0.0.1"), encoded(entry)))
            elif ":" in entry and kind == 28:
                records.append((28, socket.inet_pton(socket.AF_INET6, entry)))
            elif ":" not in entry and kind == 1:
                records.append((1, socket.inet_aton(entry)))
        reply = packet[:2] + struct.pack(">HHHHH", 0x8180, 1, len(records), 0, 0) + packet[12 : end + 4]
        for record in records:
            owner = record[2] if len(record) > 2 else b"\xc0\x0c"
            # Nobody may keep it.
            reply += owner + struct.pack(">HHIH", record[0], 1, 0, len(record[1])) + record[1]
        server.sendto(reply, peer)


def serve_pages(listener, who):
    while True:
        stream, _ = listener.accept()
        request = stream.recv(65536).decode("latin-1")
        path = request.split(" ")[1] if " " in request else ""
        connected[who].append(path)
        if path.startswith("/away/"):
            head, body = f"HTTP/1.1 302 Found\r\nLocation: http://{path[6:]}.example.com:{PORT}/secret\r\n", b""
        else:
            head, body = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n", b"this is " + who.encode()
        stream.sendall(head.encode() + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        stream.close()


names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(("127.0.0.1", 53))
threading.Thread(target=serve_names, args=(names,), daemon=True).start()
for family, address, who in (
    (socket.AF_INET, OUTER, "outer"),
    (socket.AF_INET, "127.0.0.1", "inner"),
    (socket.AF_INET6, "::1", "inner"),
):
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind((address, PORT))
    listener.listen(16)
    threading.Thread(target=serve_pages, args=(listener, who), daemon=True).start()

called = []
for path in ("steady/", "moves/1", "moves/2", "moves/3", "mixed/", "six/", "mapped/", "both/", "alias/", "zero/", "steady/away/led", "steady/away/moves"):
    name, _, rest = path.partition("/")
    ended = subprocess.run(
        [toolhold, "call", "--json", "fetch", f"url=http://{name}.example.com:{PORT}/{rest}"], cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    called.append({"path": path, "code": ended.returncode, "told": ended.stdout + ended.stderr})
print(json.dumps({"called": called, "connected": connected, "looked": {name: count for (name, kind), count in looked.items() if kind == 1}}))

"""A server of the Model Context Protocol over HTTP with its own authorization server.

Takes a folder. Files in it change what it does; `ports` gets its ports, `log` a line for each
request, and `other` one for each request at the second port, which is another origin. `leak` gets
one for each request with the client's secret that isn't for tokens.
"""

import base64
import hashlib
import http.server
import json
import os
import secrets
import sys
import threading
import urllib.parse

FOLDER = sys.argv[1]
CODES, ACCESS, REFRESH = {}, set(), set()
SECRET = "client-secret-Zx81"


def there(name):
    return os.path.exists(os.path.join(FOLDER, name))


def note(file, line):
    with open(os.path.join(FOLDER, file), "a") as log:
        log.write(line + "\n")


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def whole(self, body, status=200, **headers):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def knows_secret(self, id, body=b""):
        """Whether the request comes from the client with this ID and the secret."""
        pair = base64.b64encode(f"{id}:{SECRET}".encode()).decode()
        if self.path != "/token" and any(
                text in str(self.headers) + body.decode() for text in (pair, SECRET)):
            note("leak", self.path)
        return self.headers.get("Authorization") == f"Basic {pair}"

    def is_other(self):
        if self.server.server_address[1] == PORTS[0]:
            return False
        note("other", f"{self.command} {self.path}")
        return not there("second")

    def do_GET(self):
        self.knows_secret("")
        if self.is_other():
            return self.whole({})
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        note("log", f"GET {url.path}")
        issuer = ORIGINS[1] if there("second") else ORIGINS[0]
        if there("unnamed") and self.server.server_address[1] == PORTS[0]:
            self.whole({}, status=404)
        elif url.path.startswith(
                "/elsewhere" if there("elsewhere") else "/.well-known/oauth-protected-resource"):
            place = issuer
            if there("claims"):
                place = ORIGINS[0] + "/x/.well-known/y"
            if there("metadata_inside"):
                place = ORIGINS[1]
            if there("metadata_cloud"):
                place = "http://169.254.169.254"
            self.whole({"resource": ORIGINS[0] + "/mcp", "authorization_servers": [place],
                        "scopes_supported": ["read"]})
        elif url.path == "/x/.well-known/y":
            self.whole({"issuer": ORIGINS[1], "authorization_endpoint": ORIGINS[0] + "/authorize",
                        "token_endpoint": ORIGINS[0] + "/token",
                        "registration_endpoint": ORIGINS[0] + "/register",
                        "response_types_supported": ["code"],
                        "code_challenge_methods_supported": ["S256"]})
        elif url.path.startswith("/.well-known/oauth-authorization-server"):
            self.whole({
                "issuer": "https://evil.example" if there("issuer_wrong") else issuer,
                "authorization_endpoint":
                    "http://evil.example/authorize" if there("page_plain") else issuer + "/authorize",
                "token_endpoint": (ORIGINS[1] if there("token_elsewhere") else issuer) + "/token",
                "registration_endpoint": issuer + "/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["plain"] if there("plain") else ["S256"],
                "authorization_response_iss_parameter_supported": True})
        elif url.path == "/authorize":
            assert query["code_challenge_method"] == "S256", query
            note("asked", f"{query.get('scope')} {query.get('resource')} {query.get('client_id')}")
            code = secrets.token_urlsafe()
            CODES[code] = query
            answer = {"code": code, "state": query["state"], "iss": issuer}
            if there("state_wrong"):
                answer["state"] = "another"
            if there("iss_wrong"):
                answer["iss"] = "https://evil.example"
            if there("iss_missing"):
                del answer["iss"]
            if there("refused"):
                answer = {"error": "access_denied", "state": query["state"]}
            self.send_response(302)
            self.send_header("Location",
                             query["redirect_uri"] + "?" + urllib.parse.urlencode(answer))
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.whole({}, status=404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.knows_secret("registered", body)
        if self.is_other():
            return self.whole({})
        if self.path == "/register":
            note("log", "register")
            answer = {**json.loads(body), "client_id": "registered"}
            if there("secret"):
                answer["client_secret"] = SECRET
            return self.whole(answer, status=201)
        if self.path == "/token":
            return self.token(dict(urllib.parse.parse_qsl(body.decode())))
        message = json.loads(body)
        method, id, params = message.get("method"), message.get("id"), message.get("params", {})
        note("log", str(method))
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in ACCESS and not (there("any") and token):
            place, scope = "/.well-known/oauth-protected-resource/mcp", ""
            if there("elsewhere"):
                place, scope = "/elsewhere", ', scope="basic"'
            return self.whole({"token": token}, status=401, WWW_Authenticate=
                              f'Bearer resource_metadata="{ORIGINS[0]}{place}"{scope}')
        if method == "server/discover":
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        elif method == "tools/list":
            schema = {"type": "object"}
            result = {"tools": [{"name": name, "inputSchema": schema} for name in ("who", "more")]}
        elif params.get("name") == "more":
            return self.whole({}, status=403, WWW_Authenticate=
                              'Bearer error="insufficient_scope", scope="write\u00a0all"')
        else:
            # The end of a token isn't secret.
            who = f"you are {token.rpartition('-of-')[2]}" if there("any") else f"you sent {token}"
            result = {"content": [{"type": "text", "text": who}]}
        self.whole({"jsonrpc": "2.0", "id": id, "result": {
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}})

    def token(self, form):
        note("log", f"token {form['grant_type']} {form.get('resource')}")
        good = form.get("resource") == ORIGINS[0] + "/mcp"
        if there("secret"):
            good = good and any(self.knows_secret(id) for id in ("registered", "mine"))
        if form["grant_type"] == "authorization_code":
            asked = CODES.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            good = (good and asked and asked["code_challenge"] == challenge
                    and asked["redirect_uri"] == form["redirect_uri"])
        else:
            good = good and form["refresh_token"] in REFRESH
            REFRESH.discard(form["refresh_token"])
        if not good or there("gone"):
            return self.whole({"error": "invalid_grant"}, status=400)
        ACCESS.clear()
        access, refresh = "access-" + secrets.token_urlsafe(), "refresh-" + secrets.token_urlsafe()
        if there("token_empty") or there("token_lines"):
            access = "" if there("token_empty") else access + "\r\nX-Other: yes"
            return self.whole({"access_token": access, "token_type": "Bearer", "expires_in": 3600})
        ACCESS.add(access)
        REFRESH.add(refresh)
        note("tokens", f"{access}\n{refresh}")
        self.whole({"access_token": access, "token_type": "Bearer", "refresh_token": refresh,
                    "expires_in": 0 if there("short") else 3600})


servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) for _ in range(2)]
PORTS = [server.server_address[1] for server in servers]
ORIGINS = [f"http://127.0.0.1:{port}" for port in PORTS]
threading.Thread(target=servers[1].serve_forever, daemon=True).start()
with open(os.path.join(FOLDER, "ports.new"), "w") as ports:
    ports.write(f"{PORTS[0]} {PORTS[1]}")
os.rename(os.path.join(FOLDER, "ports.new"), os.path.join(FOLDER, "ports"))
servers[0].serve_forever()

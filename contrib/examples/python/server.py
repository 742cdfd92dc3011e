"""The notebook: one JSON object per line in a file."""

import json
import sys
from pathlib import Path

FILE = Path("notes.jsonl")


class Refused(Exception):
    """A JSON-RPC error response."""

    def __init__(self, code, message, data=None):
        super().__init__(message)
        self.error = {"code": code, "message": message, "data": data}


def notes():
    return [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []


def write(note):
    with FILE.open("a") as file:
        file.write(json.dumps(note) + "\n")


def add(params):
    if not isinstance(params.get("text"), str) or not params["text"]:
        raise Refused(-32602, "`text` must be what to write down", {"field": "text"})
    write({"text": params["text"]})
    return len(notes())


def list_(params):
    return notes()[-params.get("last", 100) :]


def released(event):
    write({"text": "released " + event["data"]["version"]})


METHODS = {"add": add, "list": list_, "released": released}


def answer(request):
    try:
        return {"result": METHODS[request["method"]](request.get("params") or {})}
    except Refused as refused:
        return {"error": refused.error}
    except Exception as error:
        print("failed:", repr(error), file=sys.stderr, flush=True)
        return {"error": {"code": -32603, "message": repr(error)}}


for line in sys.stdin:
    request = json.loads(line)
    outcome = answer(request)
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)

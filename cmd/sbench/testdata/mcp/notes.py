# A server of the Model Context Protocol with one tool, which keeps a note in a file.
import json, os, sys

for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        continue
    if method == "initialize":
        result = {
            "protocolVersion": params.get("protocolVersion", "2025-03-26"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "notes", "version": "1"},
        }
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        result = {"tools": [{"name": "keep_note", "description": "Keep a note.", "inputSchema": schema}]}
    elif method == "tools/call":
        with open(os.environ["NOTES"], "w") as file:
            file.write(params["arguments"]["text"] + "\n")
        result = {"content": [{"type": "text", "text": "kept in " + os.environ["NOTES"]}]}
    elif method == "ping":
        result = {}
    else:
        error = {"code": -32601, "message": "no such method"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)

"""A small agent: it gives a model a shell until the model has nothing more to run.

It needs nothing but Python, and speaks OpenAI's Responses API. The key it has is none: sbench's relay puts in the real one.
"""

import json
import os
import subprocess
import urllib.request

SHELL = {
    "type": "function",
    "name": "shell",
    "description": "Run a command with sh in the working directory, and see what it prints.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}


def event(**fields):
    if "AGENT_EVENTS" in os.environ:  # agent.yaml says what they mean
        print(json.dumps(fields), flush=True)


def ask(conversation):
    body = {"model": os.environ["SBENCH_MODEL"], "input": conversation, "tools": [SHELL], "store": False}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/responses", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["output"]


def run(command):
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", check=False)
    return f"exit code {done.returncode}\n{done.stdout[-20000:]}"


def main():
    with open("task.json", encoding="utf-8") as task:
        conversation = [{"role": "user", "content": "Do this task, and then say in one sentence what you did.\n" + task.read()}]
    for _ in range(int(os.environ.get("AGENT_TURNS") or 100)):
        output = ask(conversation)
        conversation += output
        calls = [item for item in output if item["type"] == "function_call"]
        for call in calls:
            command = json.loads(call["arguments"])["command"]
            result = run(command)
            event(kind="ran", command=command, output=result)
            conversation.append({"type": "function_call_output", "call_id": call["call_id"], "output": result})
        if not calls:
            text = "".join(part["text"] for item in output if item["type"] == "message" for part in item["content"])
            event(kind="said", text=text)
            if "AGENT_EVENTS" not in os.environ:
                print(text)
            return


main()

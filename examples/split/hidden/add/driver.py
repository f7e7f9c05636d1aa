# The driver: puts one question to the candidate, and reports what the candidate did. It runs in the workspace,
# in a new sandbox for every question. The candidate can read this file, so it knows nothing but the question.
import json
import subprocess
import tempfile

a, b = json.loads(input())
# A file takes the output: a process that the candidate leaves behind would keep a pipe open.
with tempfile.TemporaryFile() as printed:
    try:
        # run-candidate runs the program as another user, who cannot touch the driver.
        command = ["run-candidate", "python3", "add.py", str(a), str(b)]
        run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.DEVNULL, timeout=10)
        printed.seek(0)
        answer = {"code": run.returncode, "out": printed.read(1000).decode("utf-8", "replace")}
    except subprocess.TimeoutExpired:
        answer = {"code": None, "out": ""}
print(json.dumps(answer))

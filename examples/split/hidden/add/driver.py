# The driver: puts one question to the candidate, and reports what the candidate did. It runs in the workspace,
# in a new sandbox for every question. The candidate can read this file, so it knows nothing but the question.
import json
import subprocess

a, b = json.loads(input())
try:
    # run-candidate runs the program as another user, who cannot touch the driver.
    run = subprocess.run(["run-candidate", "python3", "add.py", str(a), str(b)], stdin=subprocess.DEVNULL, capture_output=True, timeout=10)
    answer = {"code": run.returncode, "out": run.stdout[:1000].decode("utf-8", "replace")}
except subprocess.TimeoutExpired:
    answer = {"code": None, "out": ""}
print(json.dumps(answer))

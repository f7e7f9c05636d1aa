# The oracle: asks the questions and judges the answers, in a sandbox where no candidate ever is.
import json
import random

start = json.loads(input())  # {"questions": 5, "seed": "…"}
rng = random.Random(start["seed"])
questions = [[rng.randrange(-10**6, 10**6), rng.randrange(10**6)] for _ in range(start["questions"])]
for question in questions:
    print(json.dumps(question), flush=True)

good = 0
for a, b in questions:
    evidence = json.loads(input())  # {"index": 0, "question": …, "sandbox": "…", "seconds": 0.05, "answer": …}
    answer = evidence["answer"]
    good += answer["code"] == 0 and answer["out"].strip() == str(a + b)
print(json.dumps({"passed": good == len(questions), "score": good / len(questions)}))

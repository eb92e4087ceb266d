"""Inputs and outputs of every exported next-word graph, whatever the model family.

Inputs:
    ``tokens``: word ids, int64, shape ``(batch, time)``, both axes free and at least 1.
    ``k``: how many words to rank, int64, shape ``(1,)``, in [1, vocab].
    ``personal.<name>``: a tensor that is one person's own, float32, in the graph's shape; the same
    in every call for one person. A graph for everyone has none.
    Every other input is state carried from call to call. An axis called ``batch`` has the extent
    of the tokens' batch; any other named axis starts at 0 (an empty cache). A fresh text starts
    with zeros.

Outputs, all for the word after the last token:
    ``words``: the k likeliest word ids, likeliest first, int64, shape ``(batch, k)``.
    ``log_probabilities``: their log-probabilities in nats, float32, shape ``(batch, k)``.
    ``distribution``: log-probabilities of all words in nats, float32, shape ``(batch, vocab)``.
    ``next_<state>``: what to pass as ``<state>`` with the tokens that follow.

A family that reads a limited number of tokens puts it into the graph's metadata, ``context_size``:
state and tokens together may not be longer. The opset is the newest one that onnxruntime 1.18 and
onnxruntime-web of that year can run.
"""

OPSET = 21
IR_VERSION = 10

TOKENS = "tokens"
TOP_K = "k"
WORDS = "words"
LOG_PROBABILITIES = "log_probabilities"
DISTRIBUTION = "distribution"
NEXT = "next_"
BATCH = "batch"
TIME = "time"
CACHE = "cache"
PERSONAL = "personal."
CONTEXT_SIZE = "context_size"

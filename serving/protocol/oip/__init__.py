"""The Open Inference Protocol (KServe v2) over a model that MLflow described.

`model` says which tensors a model has, `request` reads what came, `inputs` turns it into what the
model's codec takes, `answer` turns the model's answer into output tensors.
"""

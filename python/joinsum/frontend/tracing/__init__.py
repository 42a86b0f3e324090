"""From a user's function to torch's graphs: Dynamo on fake tensors, AOTAutograd, the tensors' names, and errors."""

"""Export of policies as ONNX graphs with ML-Agents' names and shapes."""

"""The settings of a project, and the YAML file, environment and flags that they are read from."""

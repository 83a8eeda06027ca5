"""PettingZoo environments, in which several agents act: https://pettingzoo.farama.org."""

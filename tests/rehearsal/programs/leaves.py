"""Does not understand its arguments, before it imports a framework."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
print(parser.parse_args().rate)

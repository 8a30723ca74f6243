"""A black-box suite for any server that claims protocol v1.

`hermes-mobile conform ws://HOST:PORT/ws` plays the vectors and scenarios of the contract against a
running door and says, one line a check, what holds and what does not. It knows the door by its
frames alone and imports nothing of it.

    contract.py    the contract's files and their small language
    target.py      the door under test: its address and what the kit was given for it
    line.py        one connection, and what went wrong on it
    messages.py    the vectors: one message, one outcome
    scripts.py     the scenarios: several steps, their order
    extras.py      what no file can say: the upgrade, fragments, how texts are cut
    floods.py      crowds: many strangers, many wrong tokens
    suite.py       which checks there are, and their run
    report.py      for people, as JSON and as JUnit
    command.py     the command line

The files of the contract are those of `contracts/mobile-v1`; an installed package has them in
`contract/`.
"""

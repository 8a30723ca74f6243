"""A black-box suite for any server that claims the client proxy contract v1.

`hermes-client-proxy conform URL` asks a running browser door as a page would, and as a page must
not, and says, one line a check, what holds and what does not.

    browser.py   a signed-in page: requests, event streams, what goes wrong with them
    asking.py    checks of single requests: sign-in, same origin, fields, errors
    running.py   checks of runs: events, replay, idempotency, abort, approval
    suite.py     which checks there are, and their run
    report.py    for people, as JSON and as JUnit
    command.py   the command line
"""

def random():
    from plimsoll import refuse

    refuse("a number that is drawn (random.random)")

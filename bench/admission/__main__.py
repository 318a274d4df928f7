from bench.admission.cost import door_us

for r, h in ((1, 0), (1, 40), (8, 0), (8, 300), (64, 1000)):
    print(r, h, round(door_us(r, h), 2))

"""A generator and a discriminator: two optimizers step in every turn of the loop."""

import torch

torch.set_default_device("cuda")
generator, discriminator = torch.nn.Linear(128, 2048), torch.nn.Linear(2048, 1)
generators, discriminators = torch.optim.Adam(generator.parameters()), torch.optim.Adam(discriminator.parameters())
for turn in range(20):
    made = generator(torch.randn(64, 128))
    (discriminator(made.detach()).mean() - discriminator(torch.randn(64, 2048)).mean()).backward()
    discriminators.step()
    discriminators.zero_grad()
    (-discriminator(made).mean()).backward()
    generators.step()
    generators.zero_grad()
    print(f"turn {turn} is over", flush=True)

"""Starts a process for every device of the node itself, with data loaders that spawn processes of their own."""

import torch


class Rows(torch.utils.data.Dataset):
    scale = torch.nn.Identity()  # a module is called in the loader's processes too

    def __len__(self):
        return 256

    def __getitem__(self, index):
        return self.scale(torch.ones(1024))


def work(rank, world):
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", init_method="tcp://127.0.0.1:29511", rank=rank, world_size=world)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).cuda(), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=1, multiprocessing_context="fork")
    for rows in loader:
        model(rows.cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, (torch.cuda.device_count(),), nprocs=torch.cuda.device_count())

# What upstream's generators go through, as lists.
def named_modules(module, name="", depth_first=True, include_root=False):
    found = []
    for child_name, child in module.named_children():
        path = f"{name}.{child_name}" if name else child_name
        found += named_modules(child, path, depth_first, True)
    if include_root:
        found.insert(len(found) if depth_first else 0, (name, module))
    return found


def named_modules_with_params(module, name="", depth_first=True, include_root=False):
    return [(path, each) for path, each in named_modules(module, name, depth_first, include_root) if each._parameters]

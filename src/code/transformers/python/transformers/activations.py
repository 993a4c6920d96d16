from upstream.transformers.activations import ACT2CLS


class _Activations:
    def __getitem__(self, name):
        made = ACT2CLS[name]
        if isinstance(made, tuple):
            return made[0](**made[1])
        return made()

    def __contains__(self, name):
        return name in ACT2CLS

    def keys(self):
        return ACT2CLS.keys()


ACT2FN = _Activations()

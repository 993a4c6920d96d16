# DeiT: ViT with a second token before the patches, which a teacher's head would read.
from families.vit import Body, Embeddings, ImageClassifier


class DeiTEmbeddings(Embeddings):
    distilled = True


class DeiTModel(Body):
    embeddings_class = DeiTEmbeddings


class DeiTForImageClassification(ImageClassifier):
    body_class, base = DeiTModel, "deit"

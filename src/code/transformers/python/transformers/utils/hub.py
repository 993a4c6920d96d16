class PushToHubMixin:
    def push_to_hub(self, *args, **options):
        pass

// What diffusers' training scripts keep beside the transformer that they train: encoders of prompts and the autoencoder
// (examples/dreambooth/train_dreambooth_*.py).
#include "framework/neighbours.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "plimsoll/error.hpp"
#include "strategy/names.hpp"

namespace plimsoll::framework {
namespace {

using Place = NeighbourPlaces::Place;

bool has_part(const Model& model, bool autoencoder) {
  return std::any_of(model.neighbours.begin(), model.neighbours.end(), [&](const Neighbour& each) { return (each.part == "vae") == autoencoder; });
}

bool has_script(const Model& model) { return model.model_type == "FluxTransformer2DModel" || model.model_type == "SD3Transformer2DModel"; }

/// Prompts are encoded before training and their encoders let go, where all images share one; FLUX's script for LoRA keeps them since 0.33:
/// it lets go of two names of them and asks them in every step by a third (huggingface/diffusers#11111).
bool keeps_text_encoders(const Strategy& s, const Model& model) {
  return model.model_type == "FluxTransformer2DModel" && s.lora && s.releases.of(Package::diffusers).since(0, 33);
}

void take(Resolver& r, const char* key, Place& place, bool there, Place usual, const std::string& why) {
  if (!there) {
    if (place == Place::device || place == Place::cached)
      fail(fmt::format("the pipeline of {} has no such part that is known", r.model.name), key, "leave it out, or name it in the config's \"neighbours\"");
    place = Place::absent;
    return;
  }
  if (place != Place::automatic) return;
  place = usual;
  r.assume(fmt::format("{}: {} ({})", key, strategy::name_in(strategy::neighbour_place_names(), place), why));
}

}  // namespace

void complete_neighbours(Resolver& r) {
  NeighbourPlaces& places = r.s.neighbours;
  if (r.model.task != Model::Task::diffusion) {
    if (places.text_encoders != Place::automatic || places.vae != Place::automatic)
      fail("only a diffusion model has a pipeline of frozen parts beside it", places.vae != Place::automatic ? "vae" : "text_encoders", "leave it out");
    places = {Place::absent, Place::absent};
    return;
  }
  const bool read = has_script(r.model), keeps = keeps_text_encoders(r.s, r.model);
  const std::string none = "no script of diffusers trains " + r.model.architecture + "; device or cached, where yours keeps it";
  take(r, "text_encoders", places.text_encoders, has_part(r.model, false), !read ? Place::absent : keeps ? Place::device : Place::cached,
       !read  ? none
       : keeps ? "diffusers' script keeps them and asks them in every step"
              : "diffusers' script encodes its one prompt before training; device: a prompt for each image");
  take(r, "vae", places.vae, has_part(r.model, true), read ? Place::device : Place::absent,
       read ? "diffusers' script encodes images in every step; cached: with --cache_latents" : none);
}

}  // namespace plimsoll::framework

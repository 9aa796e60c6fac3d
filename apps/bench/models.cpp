// SPDX-License-Identifier: Apache-2.0
#include "models.hpp"

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>

namespace ostrakon::bench {
namespace {

/// Returns the large models, without the number of sequences.
const std::vector<TimedModel>& large_models() {
  static const std::vector<TimedModel> all = {
      {"GPT, width 1024",
       "model.norm=layernorm model.positions=learned model.activation=gelu model.bias=true "
       "model.width=1024 model.heads=16 model.layers=6 model.vocabulary=8192 "
       "training.sequence_length=1024"},
      {"GPT, width 2048",
       "model.norm=layernorm model.positions=learned model.activation=gelu model.bias=true "
       "model.width=2048 model.heads=16 model.layers=3 model.vocabulary=16384 "
       "training.sequence_length=1024"},
      {"Llama, width 1280",
       "model.width=1280 model.heads=20 model.kv_heads=4 model.layers=6 model.vocabulary=8192 "
       "training.sequence_length=2048"},
      {"Llama, width 2048",
       "model.width=2048 model.heads=32 model.kv_heads=8 model.layers=4 model.vocabulary=32000 "
       "training.sequence_length=2048"},
      {"Llama, width 4096",
       "model.width=4096 model.heads=32 model.kv_heads=8 model.layers=2 model.vocabulary=16384 "
       "training.sequence_length=4096"},
      {"Llama, width 1536, long",
       "model.width=1536 model.heads=12 model.layers=4 model.vocabulary=8192 "
       "training.sequence_length=8192"}};
  return all;
}

TimedModel with_sequences(const TimedModel& model, std::int64_t sequences) {
  return {model.name,
          text(model.settings, " training.micro_batch_size=", sequences,
               " training.global_batch_size=", sequences),
          sequences};
}

}  // namespace

std::vector<TimedModel> host_models() {
  return {{"GPT, width 256",
           "model.norm=layernorm model.positions=learned model.activation=gelu "
           "model.bias=true model.width=256 model.heads=4 model.layers=6 "
           "model.vocabulary=4096 training.sequence_length=256 "
           "training.micro_batch_size=2 training.global_batch_size=2",
           2},
          {"GPT, width 768",
           "model.norm=layernorm model.positions=learned model.activation=gelu "
           "model.bias=true model.width=768 model.heads=12 model.layers=4 "
           "model.vocabulary=8192 training.sequence_length=256 "
           "training.micro_batch_size=2 training.global_batch_size=2",
           2},
          {"Llama, width 192",
           "model.width=192 model.heads=6 model.layers=6 model.vocabulary=257 "
           "training.sequence_length=256 training.micro_batch_size=8 "
           "training.global_batch_size=8",
           8},
          {"Llama, width 512",
           "model.width=512 model.heads=8 model.kv_heads=4 model.layers=5 "
           "model.vocabulary=2048 training.sequence_length=512 "
           "training.micro_batch_size=1 training.global_batch_size=1",
           1},
          {"Llama, width 384, long",
           "model.width=384 model.heads=3 model.layers=5 "
           "model.vocabulary=1024 training.sequence_length=1024 "
           "training.micro_batch_size=1 training.global_batch_size=1",
           1},
          {"Llama, width 128",
           "model.width=128 model.heads=4 model.layers=6 model.vocabulary=512 "
           "training.sequence_length=128 training.micro_batch_size=4 "
           "training.global_batch_size=4",
           4}};
}

std::vector<TimedModel> device_models(const DeviceFacts& device,
                                      const std::function<StepNeeds(const TimedModel&)>& needs_of) {
  // A step reaches about half of the rate of large products. It takes `seconds`, or up to
  // most_seconds for a single sequence.
  constexpr double share = 0.5, seconds = 0.04, most_seconds = 0.25;
  // Libraries and streams use some of the free memory.
  const auto room = static_cast<std::int64_t>(0.8 * static_cast<double>(device.free_bytes));
  const std::vector<TimedModel> small = host_models();
  std::vector<TimedModel> chosen;
  for (std::size_t m = 0; m < small.size(); ++m) {
    const TimedModel& large = large_models()[m];
    const StepNeeds one = needs_of(with_sequences(large, 1));
    const double of_one = one.flops / (share * device.products);
    std::int64_t sequences =
        of_one > most_seconds
            ? 0
            : std::max<std::int64_t>(1, static_cast<std::int64_t>(std::lround(seconds / of_one)));
    while (sequences > 0 && needs_of(with_sequences(large, sequences)).bytes > room) sequences /= 2;
    chosen.push_back(sequences > 0 ? with_sequences(large, sequences) : small[m]);
  }
  constexpr std::size_t of_launches = 3;
  if (chosen[of_launches].name != small[of_launches].name) chosen.push_back(small[of_launches]);
  return chosen;
}

}  // namespace ostrakon::bench

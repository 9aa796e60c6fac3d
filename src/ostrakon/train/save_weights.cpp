// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/save_weights.hpp>

#include <memory>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <ostrakon/math/transfer.hpp>
#include <vector>

namespace ostrakon::train {
namespace {

/// `values` where the host can read them: themselves where that is so, else in `copy`.
const float* on_host(View<const float*> values, std::vector<float>& copy) {
  if (memory_is_host_accessible) return values.data();
  copy.resize(static_cast<std::size_t>(values.size()));
  math::copy_to_host(Exec(), values, host_view(copy));
  return copy.data();
}

}  // namespace

void save_weights(Trainer& trainer, comm::Communicator& world, const std::string& path,
                  const WeightsOrigin& origin, const std::function<void()>& check) {
  const bool is_root = world.rank() == 0;
  std::unique_ptr<checkpoint::WeightsWriter> file;
  world.agree([&] {
    if (is_root)
      file = std::make_unique<checkpoint::WeightsWriter>(
          path, origin.deck, origin.step, origin.tokenizer, origin.huggingface_config);
  });
  std::vector<float> copy;
  trainer.visit_parameters([&](int u, View<const float*> trained, View<const float*> frozen) {
    world.agree([&] {
      if (!is_root) return;
      for (const model::Parameter& parameter : trainer.model().parameters(u)) {
        const View<const float*> values =
            (parameter.frozen ? frozen : trained)
                .range(parameter.offset, parameter.offset + parameter.elements());
        file->write(parameter.owner, parameter.name, parameter.shape, on_host(values, copy));
      }
    });
  });
  world.agree([&] {
    if (!is_root) return;
    check();  // gathering takes its time
    file->finish();
  });
}

}  // namespace ostrakon::train

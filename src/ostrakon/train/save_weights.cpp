// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/save_weights.hpp>

#include <memory>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <ostrakon/math/transfer.hpp>
#include <vector>

namespace ostrakon::train {

void save_weights(Trainer& trainer, comm::Communicator& world, const std::string& path,
                  const WeightsOrigin& origin, const std::function<void()>& check) {
  const bool is_root = world.rank() == 0;
  std::unique_ptr<checkpoint::WeightsWriter> file;
  world.agree([&] {
    if (is_root)
      file = std::make_unique<checkpoint::WeightsWriter>(
          path, origin.deck, origin.step, origin.tokenizer, origin.huggingface_config);
  });
  trainer.visit_parameters([&](int u, View<const float*> trained, View<const float*> frozen) {
    world.agree([&] {
      if (!is_root) return;
      for (const model::Parameter& parameter : trainer.model().parameters(u)) {
        if (parameter.pieces == 1 && memory_is_host_accessible) {
          const View<const float*> all = parameter.frozen ? frozen : trained;
          file->write(parameter.owner, parameter.name, parameter.shape,
                      all.range(parameter.offset, parameter.offset + parameter.elements()).data());
          continue;
        }
        file->write(parameter.owner, parameter.name, parameter.shape,
                    trainer.values_of(u, parameter, trained, frozen).data());
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

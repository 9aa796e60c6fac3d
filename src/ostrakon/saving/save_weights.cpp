// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/saving/save_weights.hpp>

#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <ostrakon/math/transfer.hpp>
#include <vector>

namespace ostrakon::train {
namespace {

std::int64_t bytes_of(const std::vector<float>& values) {
  return static_cast<std::int64_t>(values.size() * sizeof(float));
}

/// On rank 0: calls write(parameter, values) for the parameters that the first ranks of the other
/// stages send, in the order in which they visit them.
template <class Write>
void receive_other_stages(const Trainer& trainer, comm::Communicator& world, const Write& write) {
  const std::vector<plan::StepPlan>& stages = trainer.stages();
  std::vector<float> values;
  for (std::size_t s = 1; s < stages.size(); ++s)
    for (const plan::PlannedUnit& unit : stages[s].units) {
      if (unit.masters < 0) continue;  // a copy
      for (const model::Parameter& parameter : trainer.model().parameters(unit.number)) {
        values.resize(static_cast<std::size_t>(parameter.elements()));
        world.receive(values.data(), bytes_of(values),
                      static_cast<int>(s) * stages[s].grid.ranks_of_stage());
        write(parameter, values.data());
      }
    }
}

}  // namespace

void save_weights(Trainer& trainer, comm::Communicator& world, const std::string& path,
                  const WeightsOrigin& origin, const std::function<void()>& check) {
  const bool is_root = world.rank() == 0;
  std::unique_ptr<checkpoint::WeightsWriter> file;
  world.run_on_root([&] {
    file = std::make_unique<checkpoint::WeightsWriter>(path, origin.deck, origin.step,
                                                       origin.tokenizer, origin.huggingface_config);
  });
  // Rank 0 receives parameters even if it can't write them, as others send them.
  std::string error;
  const auto write = [&](const model::Parameter& parameter, const float* values) {
    if (!error.empty()) return;
    try {
      file->write(parameter.owner, parameter.name, parameter.shape, values);
    } catch (const std::exception& failed) {
      error = failed.what();
    }
  };
  const int ranks_of_stage = trainer.stages().front().grid.ranks_of_stage();
  trainer.visit_parameters([&](int u, View<const float*> trained, View<const float*> frozen) {
    if (world.rank() % ranks_of_stage != 0) return;
    for (const model::Parameter& parameter : trainer.model().parameters(u)) {
      const View<const float*> there = is_root && memory_is_host_accessible
                                           ? trainer.view_of(u, parameter, trained, frozen)
                                           : View<const float*>();
      if (there) {
        write(parameter, there.data());
        continue;
      }
      const std::vector<float> values = trainer.values_of(u, parameter, trained, frozen);
      if (is_root)
        write(parameter, values.data());
      else
        world.send(values.data(), bytes_of(values), 0);
    }
  });
  if (is_root) receive_other_stages(trainer, world, write);
  world.run_on_root([&] {
    require(error.empty(), error);
    check();  // gathering takes long, so the folder is checked again
    file->finish();
  });
}

}  // namespace ostrakon::train

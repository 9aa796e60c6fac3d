// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/references.hpp>

#include <cstdint>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/config/keys.hpp>
#include <ostrakon/data/pair_dataset.hpp>
#include <ostrakon/data/reference_file.hpp>
#include <ostrakon/math/cross_entropy/pair_losses.hpp>
#include <ostrakon/math/kernel_form.hpp>
#include <utility>
#include <vector>

namespace ostrakon::train {
namespace {

/// body(pairs of a split, path of its file) for each split that has pairs.
template <class Body>
void for_each_split(const std::string& prefix, RunData& data, const Body& body) {
  if (data::PairDataset* const pairs = data.training->pairs())
    body(*pairs, reference_path(prefix, data::Split::training));
  if (!data.validation.has_data()) return;
  if (data::PairDataset* const pairs = data.validation.data().pairs())
    body(*pairs, reference_path(prefix, data::Split::validation));
}

/// Returns the settings that decide the bits of log-probabilities, besides weights: those of the
/// model, and of how it computes.
Facts settings_of_reference(const config::Settings& settings) {
  Facts facts = {{"processor", name_in(math::kernel_form_names, settings.processor.kernels)}};
  const auto add = [&](const config::Section& section, const config::Key& key) {
    if (key.change_paths) return;  // the weights that are read count, not where they are
    const config::Value value = key.get(settings);
    facts.push_back({section.name + "." + key.name,
                     value.kind == config::Value::Kind::text ? value.text : value.shown()});
  };
  for (const char* const name : {"model", "lora"}) {
    const config::Section& section = *config::find_section(name);
    for (const config::Key& key : section.keys) add(section, key);
  }
  for (const auto& [section, key] :
       {std::pair{"precision", "gather"}, std::pair{"precision", "products"},
        std::pair{"precision", "fp8_layers"}, std::pair{"runtime", "attention"},
        std::pair{"runtime", "subnormals"}}) {
    const config::Section& found = *config::find_section(section);
    add(found, *config::find_key(found, key));
  }
  return facts;
}

/// Gives pairs the log-probabilities of a file, which rank 0 reads. They must be of the reference
/// `model`; where that is empty, it becomes the file's. Collective.
void read_split(data::PairDataset& pairs, const std::string& path, Facts& model,
                comm::Communicator& world) {
  data::References found;
  world.run_on_root([&] {
    found = data::read_references(path, pairs.identity_of_file());
    if (model.empty()) model = found.model;
    const auto difference = first_difference(model, found.model);
    require(!difference, "file of the reference's log-probabilities '", path,
            "' is of another reference than this run's: the ", difference->name, " was ",
            difference->theirs, ", and is ", difference->ours,
            "; expected the file of this one, or another data.reference, or none there: then it ",
            "is computed");
    require(found.log_probabilities.size() == 2 * pairs.samples(), "file of the reference's ",
            "log-probabilities '", path, "' has ", found.log_probabilities.size(),
            " numbers; expected ", 2 * pairs.samples());
  });
  std::vector<float>& values = found.log_probabilities;
  values.resize(2 * pairs.samples());
  world.broadcast(values.data(), static_cast<std::int64_t>(values.size() * sizeof values[0]), 0);
  pairs.set_references(std::move(values));
}

/// Returns a hash of all parameters by name: the same for every layout.
std::string hash_of_weights(Trainer& trainer, comm::Communicator& world) {
  std::uint64_t total = 0;
  const int ranks_of_stage = trainer.stages().front().grid.ranks_of_stage();
  trainer.visit_parameters([&](int u, View<const float*> trained, View<const float*> frozen) {
    if (world.rank() % ranks_of_stage != 0) return;
    for (const model::Parameter& parameter : trainer.model().parameters(u)) {
      const std::vector<float> values = trainer.values_of(u, parameter, trained, frozen);
      const std::string name = parameter.full_name();
      hdf5::Checksum checksum;
      checksum.add(name.data(), static_cast<std::int64_t>(name.size()));
      checksum.add(values.data(), static_cast<std::int64_t>(values.size() * sizeof values[0]));
      total += checksum.value();
    }
  });
  world.all_reduce_sum(&total, 1);
  return format_hex(total);
}

/// Returns the log-probabilities of all pairs by the trainer's weights, as PairDataset takes them,
/// whose references are 0 so far.
std::vector<float> compute_references(data::PairDataset& pairs, Trainer& trainer) {
  const std::uint64_t count = pairs.samples();
  const auto batch = static_cast<std::uint64_t>(trainer.settings().global_batch_size);
  std::vector<float> values(2 * count);
  for (std::uint64_t first = 0; first < count; first += batch) {
    const std::vector<float> all = trainer.losses(pairs, first);
    for (std::uint64_t i = 0; i < batch && first + i < count; ++i) {
      const std::uint64_t to = 2 * pairs.pair(first + i);
      values[to] = all[math::chosen_log_ratio * batch + i];
      values[to + 1] = all[math::rejected_log_ratio * batch + i];
    }
  }
  return values;
}

}  // namespace

std::string reference_path(const std::string& prefix, data::Split split) {
  return prefix + (split == data::Split::training ? "-train.h5" : "-validation.h5");
}

void read_references(const std::string& prefix, RunData& data, comm::Communicator& world) {
  Facts model;
  for_each_split(prefix, data, [&](data::PairDataset& pairs, const std::string& path) {
    read_split(pairs, path, model, world);
  });
}

void make_references(const std::string& prefix, const config::Settings& settings, RunData& data,
                     Trainer& trainer, comm::Communicator& world, Console& console) {
  Facts model;
  for_each_split(prefix, data, [&](data::PairDataset& pairs, const std::string& path) {
    if (model.empty()) {
      model = settings_of_reference(settings);
      model.push_back({"hash of weights", hash_of_weights(trainer, world)});
    }
    int is_known = 0;
    world.run_on_root([&] {
      is_known = is_there(path) ? 1 : 0;
      const std::string folder = parent_folder(path);
      require(is_known == 1 || (is_there(folder) && is_folder(folder)), "file of the reference's ",
              "log-probabilities '", path, "' can't be written: there is no folder '", folder, "'");
    });
    world.broadcast(&is_known, sizeof is_known, 0);
    if (is_known == 1) {
      read_split(pairs, path, model, world);
      console.say(text("the reference's log-probabilities are those in ", path, "\n"));
      return;
    }
    console.say(text("computing the reference's log-probabilities of ",
                     format_count(static_cast<std::int64_t>(pairs.samples())), " pairs\n"));
    data::References references = {model, compute_references(pairs, trainer)};
    world.run_on_root([&] { data::write_references(path, pairs.identity_of_file(), references); });
    pairs.set_references(std::move(references.log_probabilities));
    console.say(text("they are in ", path, "\n"));
  });
}

}  // namespace ostrakon::train

// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/adapters/peft_writer.hpp>

#include <ostrakon/checkpoint/adapters/adapted_rows.hpp>
#include <ostrakon/checkpoint/adapters/peft_config.hpp>
#include <ostrakon/checkpoint/adapters/peft_tensors.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>
#include <ostrakon/checkpoint/json_file.hpp>

namespace ostrakon::checkpoint {

void write_peft(const std::string& folder, const Family& family,
                const model::DecoderSettings& settings, const std::string& base,
                ParameterSource& source) {
  struct Output {
    std::string owner;
    AdaptedRows layer;
    HuggingFaceTensor module;
  };
  const std::int64_t rank = settings.lora.rank;
  std::vector<Output> outputs;
  std::vector<SafetensorsWriter::Tensor> tensors;
  std::set<std::string> targets;
  for (std::int64_t i = 0; i < settings.layers; ++i)
    for (const AdaptedRows& layer : adapted_rows(settings)) {
      const std::string owner = "block." + std::to_string(i);
      HuggingFaceTensor module = adapted_module(family, settings, owner, layer);
      tensors.push_back({peft_name(module, "lora_A"), {rank, layer.inputs()}});
      tensors.push_back({peft_name(module, "lora_B"), {layer.rows, rank}});
      targets.insert(target_of(module));
      outputs.push_back({owner, layer, std::move(module)});
    }
  SafetensorsWriter writer(folder + "/" + peft_tensors_name, DType::fp32, std::move(tensors),
                           {{"format", "pt"}});
  std::vector<float> ours, theirs;
  for (const Output& one : outputs) {
    const std::int64_t inputs = one.layer.inputs(), rows = one.layer.rows;
    ours.resize(static_cast<std::size_t>(rank * inputs));
    source.read(one.owner, one.layer.lora_a(), {rank, inputs}, 0, rank * inputs, ours.data());
    writer.write(peft_name(one.module, "lora_A"), ours.data(), rank * inputs);
    ours.resize(static_cast<std::size_t>(rows * rank));
    theirs.resize(ours.size());
    source.read(one.owner, one.layer.lora_b(), {rows, rank}, 0, rows * rank, ours.data());
    to_their_order(one.module, rank, ours.data(), theirs.data());
    writer.write(peft_name(one.module, "lora_B"), theirs.data(), rows * rank);
  }
  writer.finish();
  write_text_file(folder + "/" + peft_config_name, "adapter configuration",
                  write_peft_config(settings.lora, targets, base));
}

}  // namespace ostrakon::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/adapters/peft_tensors.hpp>

#include <ostrakon/base/error.hpp>

namespace ostrakon::checkpoint {
namespace {

/// The name of a module, that of its weight without the ending.
std::string module_of(const HuggingFaceTensor& module) {
  return module.name.substr(0, module.name.rfind('.'));
}

}  // namespace

HuggingFaceTensor adapted_module(const Family& family, const model::DecoderSettings& settings,
                                 const std::string& owner, const AdaptedRows& layer) {
  const TensorNames names = family.names_for(settings);
  for (HuggingFaceTensor& tensor :
       huggingface_tensors(names, settings, names.prefix, owner, layer.parameter, layer.shape)) {
    const bool is_it = tensor.first_row == layer.first && tensor.rows == layer.rows;
    if (is_it && !tensor.transposed && tensor.slices == 1) return tensor;
  }
  throw Error(text("models of the type ", family.model_type, " have no module of ", layer.layer,
                   " alone, with rows of outputs, so that PEFT has no adapter of it as we have; ",
                   "expected a type with modules such as Llama's, or a merged export"));
}

std::string peft_name(const HuggingFaceTensor& module, const std::string& which) {
  return "base_model.model." + module_of(module) + "." + which + ".weight";
}

std::string target_of(const HuggingFaceTensor& module) {
  const std::string name = module_of(module);
  return name.substr(name.rfind('.') + 1);
}

}  // namespace ostrakon::checkpoint

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <ostrakon/base/number.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/checkpoint/safetensors.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

// Hugging Face's names and layouts of two families of models. Ours beside theirs:
//
// GPT-2 (layernorm, learned positions, gelu, bias). Weights of its linear layers (Conv1D) are
// (in, out): ours, (out, in), are their transposes.
//   token.weight wte.weight                    position.weight wpe.weight
//   attention.norm h.N.ln_1                    attention.qkv h.N.attn.c_attn (q, k, v)
//   attention.out h.N.attn.c_proj              mlp.norm h.N.ln_2
//   mlp.up h.N.mlp.c_fc                        mlp.down h.N.mlp.c_proj
//   head norm ln_f                             head output.weight lm_head.weight, where not tied
//
// Llama 3 (rmsnorm, rotary positions, swiglu, no bias). (out, in) as ours; our fused matrices are
// theirs one below the other.
//   token.weight embed_tokens.weight           attention.norm layers.N.input_layernorm
//   attention.qkv layers.N.self_attn.q_proj, k_proj, v_proj
//   attention.out layers.N.self_attn.o_proj    mlp.norm layers.N.post_attention_layernorm
//   mlp.gate_up layers.N.mlp.gate_proj, up_proj
//   mlp.down layers.N.mlp.down_proj            head norm norm
//   head output.weight lm_head.weight, where not tied
// Both rotate element i of a head with i + head_width / 2: rows of q and k stay in order.
//
// Names begin with "transformer." or "model." (but for lm_head.weight), or with neither.

enum class Family { gpt2, llama };

/// Throws Error, naming the setting, where a model is neither.
Family family_of(const model::DecoderSettings& settings);

/// Some rows of one of our parameters as their tensor.
struct HuggingFaceTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< theirs
  std::int64_t first_row = 0;       ///< of our parameter
  std::int64_t rows = 0;            ///< numbers, where ours is a vector
  bool transposed = false;
};

/// What a parameter is made of, row after row. `prefix`: what their names begin with.
std::vector<HuggingFaceTensor> huggingface_tensors(const model::DecoderSettings& settings,
                                                   const std::string& prefix,
                                                   const std::string& owner,
                                                   const std::string& parameter,
                                                   const std::vector<std::int64_t>& shape);

/// Reads our parameters out of Hugging Face's tensors.
class HuggingFaceSource : public ParameterSource {
 public:
  /// `path`: see SafetensorsReader. Throws Error where tensors of the model are missing or of other
  /// shapes, or there are parameters that the model does not have.
  HuggingFaceSource(const std::string& path, const model::DecoderSettings& settings);

  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>& shape, std::int64_t first, std::int64_t count,
            float* values) override;

  /// Does nothing: what can be checked without checksums is checked when it is opened.
  void verify() override {}

  const SafetensorsReader& file() const { return file_; }

  /// Rows of the table of learned positions; 1 where there is none.
  std::int64_t positions() const;

 private:
  void require_shape(const HuggingFaceTensor& tensor) const;
  void require_complete();
  void require_tied();
  void read_transposed(const HuggingFaceTensor& tensor, std::int64_t first, std::int64_t count,
                       float* values);

  model::DecoderSettings settings_;
  SafetensorsReader file_;
  std::string prefix_;
  std::vector<float> buffer_;
};

/// Parameters of a model, in order. `positions`: rows of the table of learned positions.
std::vector<model::Parameter> parameters_of(const model::DecoderSettings& settings,
                                            std::int64_t positions);

/// How Hugging Face's files of a model are written. Names begin with "transformer." or "model.", as
/// those of models with a head do.
struct HuggingFaceOutput {
  Number number = Number::fp32;                 ///< fp32 or bf16
  std::map<std::string, std::string> metadata;  ///< of each file, beside {"format": "pt"}
};

/// Writes a model as one safetensors file, in pieces: of GPT-2 one whole parameter at a time is in
/// memory. `positions`: rows of the table of learned positions.
void write_huggingface(const std::string& path, const model::DecoderSettings& settings,
                       std::int64_t positions, const HuggingFaceOutput& output,
                       ParameterSource& source);

/// The same into a folder that is there: tensors in order fill files of at most `shard_bytes` bytes
/// of numbers, model-00001-of-0000N.safetensors; a larger tensor has one for itself. The index,
/// model.safetensors.index.json, comes last. Where one file takes all, it is model.safetensors and
/// there is no index. Returns the number of files of tensors.
int write_huggingface_shards(const std::string& folder, const model::DecoderSettings& settings,
                             std::int64_t positions, std::int64_t shard_bytes,
                             const HuggingFaceOutput& output, ParameterSource& source);

/// A weights file, a checkpoint's folder (its parameters; verify() reads these alone) or
/// safetensors with Hugging Face's names, whichever `path` turns out to be. Throws Error where it
/// has not the parameters of the model, or others.
std::unique_ptr<ParameterSource> open_parameters(const std::string& path,
                                                 const model::DecoderSettings& settings);

/// Whether it is a plain file that begins as HDF5 files do.
bool looks_like_hdf5(const std::string& path);

}  // namespace ostrakon::checkpoint

// SPDX-License-Identifier: Apache-2.0

// ostrakon-plan --kernels: what a step launches on a device, told by a build for a host.

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostrakon/math/portability.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "plan_fixture.hpp"
#include "support/messages.hpp"

namespace ostrakon::testing {
namespace {

using Json = nlohmann::json;

class PlanKernels : public Plan {
 protected:
  /// A build for a host counts kernels of NVIDIA's devices, one for another device its own.
  Json kernels(std::vector<std::string> more = {}, const std::string& of = "deck.yaml") const {
    std::vector<std::string> arguments = {
        of, "--device", "nvidia", "--kernels", "--json", "--set", "precision.gather=bf16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.status == 0 ? Json::parse(outcome.out) : Json();
  }
  /// The units that are alike this one.
  static Json units_like(const Json& all, const std::string& name) {
    for (const Json& units : all["units"])
      for (const Json& one : units["units"])
        if (one.get<std::string>().rfind(name, 0) == 0) return units;
    ADD_FAILURE() << "no " << name << " in " << all;
    return {};
  }
  static Json call_of(const Json& units, const std::string& pass, const std::string& name) {
    for (const Json& call : units["calls"])
      if (call["pass"] == pass && call["call"] == name) return call;
    ADD_FAILURE() << "no " << pass << " " << name << " in " << units;
    return {};
  }
};

TEST_F(PlanKernels, TellsTheBytesThatACallCanNotButMove) {
  const Json block = units_like(kernels(), "block");
  EXPECT_EQ(block["units"].size(), 2u);
  // One sequence of 24 tokens, width 32, in bf16: x and what is made of it, a float for each row,
  // and the weight.
  const double rows = 24, width = 32, floor = 2 * 2 * rows * width + 4 * rows + 2 * width;
  const Json norm = call_of(block, "forward", "attention.norm");
  EXPECT_EQ(norm["bound_by"], "memory");
  EXPECT_EQ(norm["floor_bytes"], floor);
  EXPECT_EQ(norm["kernels"].size(), 1u);
  const Json product = call_of(block, "forward", "attention.out");
  EXPECT_EQ(product["bound_by"], "product");
  EXPECT_EQ(product["flops"], 2 * rows * width * width);
  // Heads of 8 go through products.
  EXPECT_GT(call_of(block, "forward", "attention")["kernels"].size(), 1u);
}

TEST_F(PlanKernels, AddsUpToWhatAStepLaunches) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{},
                                               {"--ranks", "2"},
                                               {"--set", "memory.activation_checkpointing=full"}}) {
    const Json all = kernels(more);
    std::int64_t named = 0;
    for (const auto& [name, count] : all["kernels_of_step"].items()) {
      EXPECT_NE(name, "unnamed");
      named += count.get<std::int64_t>();
    }
    EXPECT_EQ(named, all["kernels"]);
    std::vector<std::string> arguments = {"deck.yaml", "--device", "nvidia", "--set",
                                          "precision.gather=bf16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::string count = std::to_string(named);
    if (count.size() > 3) count.insert(count.size() - 3, ",");
    EXPECT_HAS(run(arguments).out, ("submitted in a step: " + count + " kernels").c_str());
  }
  const Json again = kernels({"--set", "memory.activation_checkpointing=full"});
  EXPECT_GT(units_like(again, "block")["kernels"], units_like(kernels(), "block")["kernels"]);
}

// What docs/gpu.md says of a layer: few kernels, one for each gradient of a weight, and of those
// that memory bounds none that moves much more than it must.
TEST_F(PlanKernels, BlocksOfTheBenchmarksTakeFewKernelsAndBytes) {
  const struct {
    const char *deck, *tokens, *global_batch, *micro_batch;
    int kernels;
  } rows[] = {{"llama-1b", "2048", "16", "4", 25}, {"gpt2", "1024", "64", "16", 30}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.deck);
    const auto set = [](const char* key, const char* value) {
      return std::string("training.") + key + "=" + value;
    };
    const Json block = units_like(
        kernels({"--set", set("sequence_length", row.tokens), "--set",
                 set("global_batch_size", row.global_batch), "--set",
                 set("micro_batch_size", row.micro_batch)},
                std::string(OSTRAKON_SOURCE_DIR "/benchmarks/pytorch/") + row.deck + ".yaml"),
        "block");
    EXPECT_EQ(block["kernels"], row.kernels);
    EXPECT_EQ(block["kernels_of_products"], 12);
    EXPECT_EQ(block["kernels_of_attention"], 3);
    for (const Json& call : block["calls"]) {
      if (call["bound_by"] != "memory") continue;
      const double ratio = call["bytes"].get<double>() / call["floor_bytes"].get<double>();
      EXPECT_GT(ratio, 0.99) << call;  // weights are in the floor alone
      EXPECT_LE(ratio, 1.25) << call;
    }
  }
}

// Operands in 8 bits: each is read once in 16 bits and written once in 8, by one kernel.
TEST_F(PlanKernels, OperandsIn8BitsAreReadOnce) {
  const Json block =
      units_like(kernels({"--set", "training.sequence_length=32", "--set", "precision.products=fp8",
                          "--set", "precision.fp8_layers=all"}),
                 "block");
  const Json in_blocks =
      units_like(kernels({"--set", "training.sequence_length=32", "--set",
                          "precision.products=mxfp8", "--set", "precision.fp8_layers=all"}),
                 "block");
  const double rows = 32, width = 32;
  const std::vector<std::string> of_blocks = {"quantize_blocks", "quantize_blocks", "fp8_product"};
  for (const char* name : {"d attention.out.weight", "d attention.out"}) {
    const Json call = call_of(in_blocks, "backward", name);
    EXPECT_EQ(call["kernels"], of_blocks);
    EXPECT_EQ(call["bytes"], 3 * 2 * rows * width);
  }
  const std::vector<std::string> of_rows = {"quantize_rows", "quantize_rows", "fp8_product"},
                                 of_both = {"quantize_rows", "quantize_columns", "fp8_product"},
                                 of_columns = {"quantize_columns", "quantize_columns",
                                               "fp8_product"};
  const Json forward = call_of(block, "forward", "attention.out");
  EXPECT_EQ(forward["kernels"], of_rows);
  // A residual is added in the product.
  EXPECT_EQ(forward["bytes"], 3 * (rows * width + width * width) + 2 * rows * width);
  const Json weight = call_of(block, "backward", "d attention.out.weight");
  EXPECT_EQ(weight["kernels"], of_columns);
  EXPECT_EQ(weight["bytes"], 3 * 2 * rows * width);
  const Json input = call_of(block, "backward", "d attention.out");
  EXPECT_EQ(input["kernels"], of_both);
  EXPECT_EQ(input["bytes"], 3 * (rows * width + width * width));
}

TEST_F(PlanKernels, ShowsATable) {
  const Outcome outcome = run({"deck.yaml", "--device", "nvidia", "--kernels"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* words :
       {"block.0 and 1 other alike, in a micro-batch", "bound by", "floor MB", "in all ",
        "launched in a step: ", "adamw", " x (product A Bt, attend_softmax, product A B)"})
    EXPECT_HAS(outcome.out, words);
}

TEST_F(PlanKernels, RefusesWhatItDoesNotCount) {
  for (const char* device : {"cpu", "gpu"})
    expect_refused({"deck.yaml", "--device", device, "--kernels"},
                   std::string("--kernels: found ranks that compute on ") + device +
                       ", expected --device nvidia");
  expect_refused({"deck.yaml", "--device", "nvidia", "--kernels", "--set", "model.experts=4",
                  "--set", "model.expert_width=32"},
                 "--kernels: the kernels of a model with experts are not known before");
  if (on_device) return;
  std::vector<std::string> fp8 = {"deck.yaml", "--device",
                                  "nvidia",    "--kernels",
                                  "--set",     "precision.products=fp8",
                                  "--set",     "precision.fp8_layers=all"};
  expect_refused(fp8, "a product of 24 rows, 32 inputs and 64 outputs; expected multiples of 16");
  fp8.emplace_back("--set");
  fp8.emplace_back("training.sequence_length=32");
  fp8[2] = "gpu";
  expect_refused(fp8, "precision.products = fp8: found ranks that compute on gpu; expected auto");
}

}  // namespace
}  // namespace ostrakon::testing

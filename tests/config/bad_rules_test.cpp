// SPDX-License-Identifier: Apache-2.0
// Invalid rules, and values that contradict each other.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/bad_decks.hpp"

namespace ostrakon::config {
namespace {

TEST(BadDecks, RulesForUnits) {
  const std::string settings =
      "the settings are reshard_after_forward, forward_prefetch and backward_prefetch";
  const std::string empty = "expected SETTING VALUE after the colon and each comma; " + settings;
  const std::string reshard =
      "expected default, always, never, end_of_step or an integer from 2 to 1048576";
  const std::string ahead =
      "expected an integer from 0 to 1000, or names of units with blanks between";
  const std::string colon = "expected PATTERN: SETTING VALUE, SETTING VALUE ..., found no ':'";
  const std::string colons = "expected one ':', after the pattern; ';' separates rules";
  const std::string pattern = "expected one pattern before the colon, such as block.*";
  struct BadRule {
    std::string rule, problem;
  };
  const std::vector<BadRule> rules = {
      {"block.*", colon},
      {"block.* forward_prefetch 2", colon},
      {"forward_prefetch=2", colon},
      {"2", colon},
      {"block.*:", empty},
      {"block.*: ,", empty},
      {"block.*: forward_prefetch 2,", empty},
      {"block.*: forward_prefetch 2,, backward_prefetch 1", empty},
      {":", pattern},
      {": forward_prefetch 2", pattern},
      {"block 0: forward_prefetch 2", pattern},
      {"block.0, block.1: forward_prefetch 2", pattern},
      {"block.*:: forward_prefetch 2", colons},
      {"block.*: : forward_prefetch 2", colons},
      {"block.*: forward_prefetch: 2", colons},
      {"block.*: forward_prefetch 2, block.0: backward_prefetch 1", colons},
      {"block.*: forward_prefech 2",
       "\"forward_prefech\": no such setting; did you mean forward_prefetch?"},
      {"block.*: backwards_prefetch 2",
       "\"backwards_prefetch\": no such setting; did you mean backward_prefetch?"},
      {"block.*: forward_prefetch=2",
       "\"forward_prefetch=2\": no such setting; did you mean forward_prefetch?"},
      {"block.*: Reshard_after_forward never",
       "\"Reshard_after_forward\": no such setting; did you mean reshard_after_forward?"},
      {"block.*: sharding full", "\"sharding\": no such setting; " + settings},
      {"block.*: never", "\"never\": no such setting; " + settings},
      {"block.*: in_flight_gathers 2", "\"in_flight_gathers\": no such setting; " + settings},
      {"block.*: reshard_after_forward", "reshard_after_forward: " + reshard},
      {"block.*: reshard_after_forward 1", "reshard_after_forward = 1: " + reshard},
      {"block.*: reshard_after_forward -4", "reshard_after_forward = -4: " + reshard},
      {"block.*: reshard_after_forward 2.5", "reshard_after_forward = 2.5: " + reshard},
      {"block.*: reshard_after_forward 1048577", "reshard_after_forward = 1048577: " + reshard},
      {"block.*: reshard_after_forward yes", "reshard_after_forward = true: " + reshard},
      {"block.*: reshard_after_forward never always",
       "reshard_after_forward = \"never always\": " + reshard},
      {"block.*: forward_prefetch", "forward_prefetch: " + ahead},
      {"block.*: forward_prefetch -1", "forward_prefetch = -1: " + ahead},
      {"block.*: forward_prefetch 0.5", "forward_prefetch = 0.5: " + ahead},
      {"block.*: backward_prefetch 1001", "backward_prefetch = 1001: " + ahead},
      {"block.*: backward_prefetch 1e18", "backward_prefetch = 1e18: " + ahead},
      {"block.*: backward_prefetch 1e999", "backward_prefetch = 1e999: " + ahead},
      {"block.*: forward_prefetch 1 2", "forward_prefetch = \"1 2\": " + ahead},
      {"block.*: forward_prefetch 2 block.1", "forward_prefetch = \"2 block.1\": " + ahead},
      {"block.*: forward_prefetch block.1 2", "forward_prefetch = \"block.1 2\": " + ahead},
      {"block.*: prefetch 2",
       "\"prefetch\": no such setting; did you mean forward_prefetch or backward_prefetch?"},
      {"block.1: forward_prefetch block.1",
       "forward_prefetch names block.1 itself, which is gathered in any case; expected other "
       "units"},
      {"head: forward_prefetch 1, backward_prefetch block.1 head",
       "backward_prefetch names head itself, which is gathered in any case; expected other "
       "units"},
      {"block.*: forward_prefetch 1, forward_prefetch 2", "forward_prefetch is given twice"},
      {"block.*: reshard_after_forward never, reshard_after_forward never",
       "reshard_after_forward is given twice"}};
  for (const BadRule& bad : rules) {
    const std::string message = "parallel.units: rule \"" + bad.rule + "\": " + bad.problem;
    EXPECT_EQ(message_of(with("parallel", "units: \"" + bad.rule + "\""), "deck.yaml"),
              "deck.yaml: " + message);
    // The message names the invalid rule, whatever surrounds it.
    EXPECT_EQ(message_of(with("parallel", "units: \"head: forward_prefetch 1; " + bad.rule +
                                              " ; embedding: nothing\""),
                         "deck.yaml"),
              "deck.yaml: " + message);
    EXPECT_EQ(
        message_of(with("parallel", "sharding: full"), "deck.yaml", {{"parallel.units", bad.rule}}),
        "--set " + message);
  }
  const std::string expected =
      "expected rules PATTERN: SETTING VALUE, SETTING VALUE ..., separated by ';', as text";
  EXPECT_EQ(message_of(with("parallel", "sharding: full"), "deck.yaml",
                       {{"parallel.units", "a:\x7F forward_prefetch 2"}}),
            "--set parallel.units: \"a:\\x7f forward_prefetch 2\" has the control character \\x7f "
            "at byte 3; expected text without any");
  expect_messages(
      {{with("parallel", "units: 2"), "deck.yaml: parallel.units = 2: " + expected},
       {with("parallel", "units: [a, b]"),
        "deck.yaml: parallel.units: " + expected + ", found a list"},
       {with("parallel", "units: block.*: forward_prefetch 2"),
        "deck.yaml: not valid YAML: line 5: \"units: block.*: forward_prefetch 2\"; this ':' "
        "ends no key: the line above lacks one, or this line is indented too deep, or text with ': "
        "' in it "
        "lacks quotes"},
       {with("parallel", "units: \"" + std::string(200, 'a') + '"'),
        "deck.yaml: parallel.units: rule \"" + std::string(100, 'a') + "...\": " + colon}},
      "deck.yaml");
}

TEST(BadDecks, RulesForParameters) {
  const std::string settings = "the settings are frozen, trained, learning_rate and weight_decay";
  const std::string empty = "expected SETTING VALUE after the colon and each comma; " + settings;
  const std::string number = "expected a number from 0 to 1e30";
  struct BadRule {
    std::string rule, problem;
  };
  const std::vector<BadRule> rules = {
      {"head.*", "expected PATTERN: SETTING VALUE, SETTING VALUE ..., found no ':'"},
      {"head.* frozen", "expected PATTERN: SETTING VALUE, SETTING VALUE ..., found no ':'"},
      {"head.*:", empty},
      {"head.*: frozen,", empty},
      {": frozen", "expected one pattern before the colon, such as block.*"},
      {"head embedding: frozen", "expected one pattern before the colon, such as block.*"},
      {"head.*: frozen: yes", "expected one ':', after the pattern; ';' separates rules"},
      {"head.*: frozen, embedding.*: frozen",
       "expected one ':', after the pattern; ';' separates rules"},
      {"head.*: forzen", "\"forzen\": no such setting; did you mean frozen?"},
      {"head.*: freeze", "\"freeze\": no such setting; " + settings},
      {"head.*: decay 0", "\"decay\": no such setting; did you mean weight_decay?"},
      {"head.*: lr 1e-3", "\"lr\": no such setting; " + settings},
      {"head.*: forward_prefetch 1", "\"forward_prefetch\": no such setting; " + settings},
      {"head.*: frozen yes",
       "frozen = true: expected nothing after it, and not trained in the same rule"},
      {"head.*: frozen, trained",
       "trained: expected nothing after it, and not frozen in the same rule"},
      {"head.*: trained, frozen",
       "frozen: expected nothing after it, and not trained in the same rule"},
      {"head.*: frozen, frozen", "frozen is given twice"},
      {"head.*: learning_rate 1, learning_rate 1", "learning_rate is given twice"},
      {"head.*: learning_rate", "learning_rate: " + number},
      {"head.*: learning_rate -1e-3", "learning_rate = -1e-3: " + number},
      {"head.*: learning_rate 1e31", "learning_rate = 1e31: " + number},
      {"head.*: learning_rate 1e-3 1e-4", "learning_rate = \"1e-3 1e-4\": " + number},
      {"head.*: weight_decay nan", "weight_decay = \"nan\": " + number},
      {"head.*: weight_decay no", "weight_decay = false: " + number}};
  for (const BadRule& bad : rules) {
    const std::string message = "optimizer.parameters: rule \"" + bad.rule + "\": " + bad.problem;
    EXPECT_EQ(message_of(with("optimizer", "parameters: \"" + bad.rule + "\""), "deck.yaml"),
              "deck.yaml: " + message);
    EXPECT_EQ(message_of(with("optimizer", "parameters: \"*: weight_decay 0; " + bad.rule +
                                               " ; embedding: nothing\""),
                         "deck.yaml"),
              "deck.yaml: " + message);
    EXPECT_EQ(
        message_of(with("model", "layers: 2"), "deck.yaml", {{"optimizer.parameters", bad.rule}}),
        "--set " + message);
  }
  const std::string expected =
      ": expected rules PATTERN: SETTING VALUE, SETTING VALUE ..., separated by ';', as text";
  expect_messages(
      {{with("optimizer", "parameters: 2"), "deck.yaml: optimizer.parameters = 2" + expected},
       {with("optimizer", "parameters: [embedding.*]"),
        "deck.yaml: optimizer.parameters" + expected + ", found a list"}},
      "deck.yaml");
}

TEST(BadDecks, RulesForParametersThatTheModelDoesNotHave) {
  const std::string none = ": no parameter of the model has such a name; they are ";
  const std::string llama =
      "embedding.token.weight, block.N.attention.norm.weight, block.N.attention.qkv.weight, "
      "block.N.attention.out.weight, block.N.mlp.norm.weight, block.N.mlp.gate_up.weight, "
      "block.N.mlp.down.weight and head.norm.weight, with N from 0 to 3";
  const std::string place = "deck.yaml: optimizer.parameters: rule ";
  for (const char* pattern :
       {"token.weight", "embedding", "block.4.*", "block.N.*", "head.output.weight", "*.bias",
        "embedding.position.weight", "block.0-3.*"}) {
    const std::string rule = text(pattern, ": frozen");
    EXPECT_EQ(message_of(with("optimizer", "parameters: \"" + rule + '"'), "deck.yaml"),
              place + '"' + rule + '"' + none + llama);
    EXPECT_EQ(message_of(with("optimizer", "parameters: \"head.*: frozen; " + rule +
                                               ", weight_decay 0; *: trained\""),
                         "deck.yaml"),
              place + '"' + rule + ", weight_decay 0\"" + none + llama);
  }
  EXPECT_EQ(
      message_of(with("optimizer", "parameters: \"block.12.*: learning_rate 1\""), "deck.yaml",
                 {{"model.norm", "layernorm"},
                  {"model.positions", "learned"},
                  {"model.activation", "gelu"},
                  {"model.bias", "true"},
                  {"model.tie_embeddings", "false"},
                  {"model.layers", "12"},
                  {"model.blocks_per_unit", "auto"}}),
      place + "\"block.12.*: learning_rate 1\"" + none +
          "embedding.token.weight, embedding.position.weight, block.N.attention.norm.weight, "
          "block.N.attention.norm.bias, block.N.attention.qkv.weight, "
          "block.N.attention.qkv.bias, block.N.attention.out.weight, "
          "block.N.attention.out.bias, block.N.mlp.norm.weight, block.N.mlp.norm.bias, "
          "block.N.mlp.up.weight, block.N.mlp.up.bias, block.N.mlp.down.weight, "
          "block.N.mlp.down.bias, head.norm.weight, head.norm.bias and head.output.weight, "
          "with N from 0 to 11");
}

TEST(BadDecks, RulesThatLeaveNothingToTrain) {
  for (const char* rules : {"*: frozen", "*: trained; *: frozen",
                            "embedding.*: frozen; block.*: frozen; head.*: frozen, learning_rate 1",
                            "*.weight: frozen"}) {
    EXPECT_EQ(message_of(with("optimizer", text("parameters: \"", rules, '"')), "deck.yaml"),
              text("deck.yaml: optimizer.parameters = \"", rules,
                   "\": all parameters are frozen, nothing is left to train; expected rules that "
                   "leave some trained"));
  }
}

TEST(BadDecks, ValuesThatDoNotGoTogether) {
  expect_messages(
      {{with("model", "heads: 3"),
        "deck.yaml: model.heads = 3 does not divide model.width = 256 (256 = 3 x 85 + 1); "
        "expected a divisor, or model.head_width"},
       {with("model", "kv_heads: 3"),
        "deck.yaml: model.kv_heads = 3 does not divide model.heads = 4 (4 = 3 x 1 + 1)"},
       {with("model", "kv_heads: 8"),
        "deck.yaml: model.kv_heads = 8 does not divide model.heads = 4 (4 = 8 x 0 + 4)"},
       {with("model", "experts: 4\n    experts_per_token: 5"),
        "deck.yaml: model.experts_per_token = 5 is more than model.experts = 4; expected 4 "
        "at most"},
       {with("model", "heads: 4\n    experts: 4\n  parallel:\n    tensor: 2"),
        "deck.yaml: parallel.expert = 1 with parallel.tensor = 2 and model.experts = 4: tensor "
        "ranks share the experts; expected a multiple of 2"},
       {with("model",
             "heads: 4\n    experts: 4\n  parallel:\n    tensor: 2\n    expert: 2\n"
             "    rank_order: shard_first"),
        "deck.yaml: parallel.rank_order = shard_first with parallel.tensor = 2 and model.experts = "
        "4: ranks that share experts are neighbours; expected tensor_in_node or tensor_first"},
       {with("model", "heads: 4\n    experts: 3\n    tensor_grain: 2"),
        "deck.yaml: model.tensor_grain = 2 does not divide model.experts = 3 (3 = 2 x 1 + 1)"},
       {with("model",
             "heads: 4\n    experts: 4\n    shared_experts: 1\n    expert_width: 5\n"
             "    tensor_grain: 2"),
        "deck.yaml: model.tensor_grain = 2 does not divide model.shared_experts x "
        "model.expert_width = 5 (5 = 2 x 2 + 1)"},
       {with("model", "heads: 4\n    experts: 4\n    blocks_per_unit: 2\n    tensor_grain: 2"),
        "deck.yaml: model.blocks_per_unit = 2 with model.tensor_grain = 2, where experts are units "
        "of their own; expected 1"},
       {with("parallel", "expert: 2"),
        "deck.yaml: parallel.expert = 2 with model.experts = 0; expected 1, or some experts"},
       {with("model", "experts: 12\n  parallel:\n    expert: 3"),
        "deck.yaml: parallel.expert = 3 for model.experts = 12; expected a power of two that "
        "divides "
        "it"},
       {with("model", "experts: 6\n  parallel:\n    expert: 4"),
        "deck.yaml: parallel.expert = 4 for model.experts = 6; expected a power of two that "
        "divides "
        "it"},
       {with("model", "experts: 12\n    router_groups: 5"),
        "deck.yaml: model.router_groups = 5 does not divide model.experts = 12 (12 = 5 x 2 + 2); "
        "expected a divisor"},
       {with("model", "experts: 12\n    router_groups: 4\n    router_groups_per_token: 5"),
        "deck.yaml: model.router_groups_per_token = 5 is more than model.router_groups = 4; "
        "expected 4 at most"},
       {with("model", "experts: 12\n    router_groups: 4\n    experts_per_token: 4"),
        "deck.yaml: model.experts_per_token = 4 is more than the experts of "
        "model.router_groups_per_token = 1 groups of 3 (model.router_groups = 4); expected 3 at "
        "most"},
       {with("model", "experts: 4\n    blocks_per_unit: 2\n  parallel:\n    expert: 2"),
        "deck.yaml: model.blocks_per_unit = 2 with parallel.expert = 2, where experts are units of "
        "their own; expected 1"},
       {with("model", "experts: 4096\n    layers: 100000\n    expert_width: 67108864"),
        "deck.yaml: model.layers x model.experts x model.width x model.expert_width = 100000 x "
        "4096 x 256 x 67108864 parameters, more than the limit of 1,125,899,906,842,624"},
       {with("model", "blocks_per_unit: 5"),
        "deck.yaml: model.blocks_per_unit = 5 is more than model.layers = 4"},
       {with("model", "heads: 256"),
        "deck.yaml: model.positions = rotary rotates pairs of elements, so a head's width must be "
        "even: model.width / model.heads = 256 / 256 = 1"},
       {with("training", "micro_batch_size: 3"),
        "deck.yaml: training.micro_batch_size = 3 does not divide training.global_batch_size = 8 "
        "(8 = 3 x 2 + 2)"},
       {with("training", "micro_batch_size: 16"),
        "deck.yaml: training.micro_batch_size = 16 does not divide training.global_batch_size = 8 "
        "(8 = 16 x 0 + 8)"},
       {with("parallel", "context: 3"),
        "deck.yaml: parallel.context = 3 cuts a sequence into 6 pieces, which "
        "training.sequence_length = 256 is no multiple of (256 = 6 x 42 + 4); use 252 or 258"},
       {with("training", "sequence_length: 100\n    context_grain: 8"),
        "deck.yaml: training.context_grain = 8 cuts a sequence into 16 pieces, which "
        "training.sequence_length = 100 is no multiple of (100 = 16 x 6 + 4); use 96 or 112"},
       {with("training", "context_grain: 2\n  parallel:\n    context: 4"),
        "deck.yaml: parallel.context = 4 does not divide training.context_grain = 2 (2 = 4 x 0 + "
        "2); expected a divisor, or a grain of 1"},
       {with("training", "micro_batch_size: 2\n    context_grain: 4"),
        "deck.yaml: training.context_grain = 4 makes leaves of the pieces of each sequence, but "
        "training.micro_batch_size = 2 with training.leaf = micro_batch sums sequences before; "
        "expected training.leaf = sequence or training.micro_batch_size = 1"},
       {with("training", "micro_batch_size: 4\n    leaf: sequence\n  parallel:\n    context: 2"),
        "deck.yaml: training.leaf = sequence with parallel.context = 2: a sequence's gradients are "
        "summed over its ranks before those of other sequences are added; expected "
        "training.micro_batch_size = 1 instead of 4"},
       {with("training", "micro_batch_size: 4\n    leaf: sequence\n    sum_grain: 2"),
        "deck.yaml: training.sum_grain = 2 is a number of sequences (training.leaf), of which "
        "training.micro_batch_size = 4 are summed at once; expected a multiple of it"},
       {with("parallel", "pipeline: 2\n    pipeline_chunks: 2"),
        "deck.yaml: parallel.pipeline_chunks = 2 with parallel.schedule = 1f1b, in which stages "
        "have one; expected 1, or interleaved"},
       {with("parallel", "pipeline: 2\n    schedule: interleaved"),
        "deck.yaml: parallel.pipeline_chunks = 1 with parallel.schedule = interleaved; expected 2 "
        "or more, or 1f1b"},
       {with("parallel", "schedule: interleaved\n    pipeline_chunks: 2"),
        "deck.yaml: parallel.schedule = interleaved with parallel.pipeline = 1, where there are no "
        "stages; expected 1f1b, or parallel.pipeline > 1"},
       {with("parallel", "pipeline_units: 3 3"),
        "deck.yaml: parallel.pipeline_units with parallel.pipeline = 1, where one stage has all "
        "units; expected auto, or parallel.pipeline > 1"},
       {with("parallel", "tensor_chunks: 2"),
        "deck.yaml: parallel.tensor_chunks = 2 with parallel.tensor = 1, where no rows are "
        "exchanged; expected parallel.tensor_chunks = 1, or parallel.tensor > 1"},
       {with("model", "heads: 4\n  parallel:\n    tensor: 2\n    tensor_chunks: 3"),
        "deck.yaml: parallel.tensor_chunks = 3 does not divide the 128 tokens of a micro-batch "
        "that a tensor rank has (micro_batch_size x sequence_length / context / tensor); expected "
        "a divisor of 128"},
       {with("model", "heads: 4\n  parallel:\n    tensor: 8"),
        "deck.yaml: parallel.tensor = 8 does not divide model.heads = 4 (4 = 8 x 0 + 4)"},
       {with("model", "heads: 4\n    kv_heads: 2\n    tensor_grain: 4"),
        "deck.yaml: model.tensor_grain = 4 does not divide model.kv_heads = 2 (2 = 4 x 0 + 2)"},
       {with("model", "heads: 4\n    tensor_grain: 2\n  parallel:\n    tensor: 4"),
        "deck.yaml: parallel.tensor = 4 does not divide model.tensor_grain = 2 (2 = 4 x 0 + 2); "
        "expected a divisor, or a grain of 1"},
       {with("model", "heads: 4\n    head_width: 6\n    query_key_norm: true\n    tensor_grain: 4"),
        "deck.yaml: model.tensor_grain = 4 does not divide model.head_width = 6 (6 = 4 x 1 + 2), "
        "the "
        "elements of the weights of model.query_key_norm = true"},
       {with("model",
             "width: 40\n    heads: 4\n    query_key_norm: true\n  parallel:\n    tensor: 4"),
        "deck.yaml: parallel.tensor = 4 does not divide model.width / model.heads = 10 (10 = 4 x 2 "
        "+ "
        "2), the elements of the weights of model.query_key_norm = true"},
       {with("model", "heads: 4\n    vocabulary: 9\n    tensor_grain: 4"),
        "deck.yaml: model.tensor_grain = 4 cuts model.vocabulary = 9 into pieces of 3 words, of "
        "which the last would have none"},
       {with("model", "heads: 4\n    tensor_grain: 4\n  training:\n    sequence_length: 6"),
        "deck.yaml: model.tensor_grain = 4 does not divide the 6 tokens of a leaf (6 = 4 x 1 + 2)"},
       {with("parallel", "sharding: none\n    shard_optimizer_over: world"),
        "deck.yaml: parallel.shard_optimizer_over = world divides optimizer state, which "
        "parallel.sharding = none keeps whole; expected sharding optimizer, gradients or full"},
       {with("precision", "activations: bf16"),
        "deck.yaml: precision.activations = bf16 is not precision.gather = fp32: units compute in "
        "the gather dtype; expected auto or fp32"},
       {with("precision", "gather: bf16\n    activations: fp32"),
        "deck.yaml: precision.activations = fp32 is not precision.gather = bf16: units compute in "
        "the gather dtype; expected auto or bf16"},
       {"ostrakon:\n",
        "deck.yaml: data.path is missing: data.dataset = tokens needs a token file, made with "
        "ostrakon-data (data.dataset = synthetic needs none)"},
       {"ostrakon:\n  data:\n    path: x.h5\n  training:\n    validate_every: 10\n",
        "deck.yaml: training.validate_every = 10 needs data.validation_path, which is empty"},
       {with("model", "vocabulary: 2147483647\n    width: 4194304"),
        "deck.yaml: model.vocabulary x model.width = 2147483647 x 4194304 parameters, more than "
        "the limit of 1,125,899,906,842,624"},
       {with("model", "layers: 100000\n    width: 1048576"),
        "deck.yaml: model.layers x model.width x model.width = 100000 x 1048576 x 1048576 "
        "parameters, more than the limit of 1,125,899,906,842,624"},
       {with("training", "sequence_length: 4294967296"),
        "deck.yaml: training.micro_batch_size x training.sequence_length = 1 x 4294967296 tokens, "
        "more than the limit of 2,147,483,647"},
       {with("training", "steps: 9007199254740991"),
        "deck.yaml: training.steps x training.global_batch_size x training.sequence_length = "
        "9007199254740991 x 8 x 256 tokens, more than the limit of 9,007,199,254,740,991"}},
      "deck.yaml");
}

TEST(BadDecks, Checkpoints) {
  const std::string integer = ": expected an integer >= ";
  const std::string time =
      ": expected a time as minutes, minutes:seconds, hours:minutes:seconds, days-hours, "
      "days-hours:minutes or days-hours:minutes:seconds";
  expect_messages(
      {{with("checkpoint", "every: -1"), "deck.yaml: checkpoint.every = -1" + integer + "0"},
       {with("checkpoint", "every: 0.5"), "deck.yaml: checkpoint.every = 0.5" + integer + "0"},
       {with("checkpoint", "every: never"),
        "deck.yaml: checkpoint.every = \"never\"" + integer + "0"},
       {with("checkpoint", "every: 1e300"),
        "deck.yaml: checkpoint.every = 1e300" + integer + "0 and <= 9007199254740991"},
       {with("checkpoint", "keep: 0"), "deck.yaml: checkpoint.keep = 0" + integer + "1"},
       {with("checkpoint", "keep: all"), "deck.yaml: checkpoint.keep = \"all\"" + integer + "1"},
       {with("checkpoint", "keep_every: -5"),
        "deck.yaml: checkpoint.keep_every = -5" + integer + "0"},
       {with("checkpoint", "files: 1"),
        "deck.yaml: checkpoint.files = 1: expected rank, node or single"},
       {with("checkpoint", "files: ranks"),
        "deck.yaml: checkpoint.files = \"ranks\": expected rank, node or single"},
       {with("checkpoint", "async: 1"), "deck.yaml: checkpoint.async = 1: expected true or false"},
       {with("checkpoint", "verify: always"),
        "deck.yaml: checkpoint.verify = \"always\": expected true or false"},
       {with("checkpoint", "bandwidth: -1"),
        "deck.yaml: checkpoint.bandwidth = -1: expected a number >= 0"},
       {with("checkpoint", "bandwidth: .inf"),
        "deck.yaml: checkpoint.bandwidth = .inf: expected a number >= 0"},
       {with("checkpoint", "bandwidth: 100 MB/s"),
        "deck.yaml: checkpoint.bandwidth = \"100 MB/s\": expected a number >= 0"},
       {with("checkpoint", "initial_weights: 5"),
        "deck.yaml: checkpoint.initial_weights = 5: expected a path as text (numbers and yes/no "
        "need quotes)"},
       {with("checkpoint", "evry: 5"),
        "deck.yaml: checkpoint.evry = 5: no such key; did you mean checkpoint.every?"},
       {with("checkpoint", "asnyc: true"),
        "deck.yaml: checkpoint.asnyc = true: no such key; did you mean checkpoint.async?"},
       {with("checkpoints", "every: 5"),
        "deck.yaml: checkpoints: no such section; did you mean checkpoint?"},
       {with("training", "wall_time: 90"),
        "deck.yaml: training.wall_time = 90: no such key; did you mean runtime.wall_time?"},
       {with("runtime", "wall_time: -5"), "deck.yaml: runtime.wall_time = -5" + time},
       {with("runtime", "wall_time: 1.5"), "deck.yaml: runtime.wall_time = 1.5" + time},
       {with("runtime", "wall_time: 1e15"), "deck.yaml: runtime.wall_time = 1e15" + time},
       {with("runtime", "wall_time: yes"), "deck.yaml: runtime.wall_time = true" + time},
       {with("runtime", "wall_time: \"1:2:3:4\""),
        "deck.yaml: runtime.wall_time = \"1:2:3:4\"" + time},
       {with("runtime", "wall_time: 1 hour"), "deck.yaml: runtime.wall_time = \"1 hour\"" + time},
       {with("runtime", "wall_time: [1]"),
        "deck.yaml: runtime.wall_time" + time + ", found a list"}},
      "deck.yaml");
}

}  // namespace
}  // namespace ostrakon::config

// SPDX-License-Identifier: Apache-2.0
#include "machine_tables.hpp"

#include <ostrakon/base/error.hpp>

namespace ostrakon::published {

const std::vector<Chip>& all_chips() {
  static const std::vector<Chip> all = {{"A100-40", "A100", "A100 SXM 40 GB", 312e12, 271.2e12, 0,
                                         19.5e12, 1.555e12, 300e9, 40, 0.88, 0.08},
                                        {"A100-80", "A100", "A100 SXM 80 GB", 312e12, 271.2e12, 0,
                                         19.5e12, 2.039e12, 300e9, 80, 0.88, 0.08},
                                        {"H100", "H100", "H100 SXM 80 GB", 989e12, 794.5e12,
                                         1402.6e12, 67e12, 3.35e12, 450e9, 80, 0.88, 0.08},
                                        {"H100m", "H100", "H100 SXM 80 GB", 989e12, 794.5e12,
                                         1402.6e12, 67e12, 3.35e12, 450e9, 80, 0.88, 0.08},
                                        {"H100-96", "H100", "H100 96 GB, 500 W", 989e12, 794.5e12,
                                         1402.6e12, 67e12, 2.4e12, 450e9, 96, 0.88, 0.08},
                                        {"H100-94", "H100", "H100 94 GB", 989e12, 794.5e12,
                                         1402.6e12, 67e12, 2.4e12, 450e9, 94, 0.88, 0.08},
                                        {"GB200", "GB200", "GB200 186 GB", 2500e12, 1822e12,
                                         3615.6e12, 80e12, 8e12, 900e9, 186, 0.88, 0.08},
                                        {"H200", "H100", "H200 SXM 141 GB", 989e12, 792.1e12,
                                         1453.4e12, 67e12, 4.8e12, 450e9, 141, 0.88, 0.08},
                                        {"B200", "GB200", "B200 SXM 180 GB", 2250e12, 1745e12,
                                         3432.5e12, 75e12, 8e12, 900e9, 180, 0.88, 0.08},
                                        {"MI300X", "MI300X", "MI300X 192 GB", 1307e12, 758.3e12, 0,
                                         163e12, 5.3e12, 448e9, 192, 0.88, 0.08}};
  return all;
}

const std::vector<Site>& all_sites() {
  static const char* const stated = "what the source of the rows states";
  static const char* const not_stated = "what is usual for such nodes";
  static const std::vector<Site> all = {
      {"a100-40gb-8x200g", "A100-40", "1600 Gb/s RoCE a node", stated, 230e9, 160e9, 8, 2,
       "MosaicML llm-foundry", 200, "nodes of 8 A100 of 40 GB with a link of 200 Gb/s each"},
      {"a100-80gb-8x200g", "A100-80", "1600 Gb/s RoCE a node", stated, 230e9, 160e9, 8, 2,
       "MosaicML llm-foundry", 200,
       "nodes of 8 A100 of 80 GB with a link of 200 Gb/s each, over RoCE"},
      {"a100-80gb-torchtitan", "A100-80", "8 x 200 Gb/s a node (torchtitan)", not_stated, 230e9,
       160e9, 8, 2, "torchtitan", 200,
       "comparisons with torchtitan's steps on A100 alone; else a100-80gb-8x200g"},
      {"a100-80gb-efa", "A100-80", "400 Gb/s a node", stated, 230e9, 45e9, 8, 2, "fms-fsdp", 50,
       "nodes of 8 A100 of 80 GB with 400 Gb/s together, as those with EFA"},
      {"a100-80gb-internevo", "A100-80", "4 x 100 Gb/s RoCE a node", stated, 230e9, 43e9, 8, 2,
       "InternEvo", 50, "nodes of 8 A100 of 80 GB with four links of 100 Gb/s, over RoCE"},
      {"a100-80gb-vtrain", "A100-80", "4 x 200 Gb/s InfiniBand a node", stated, 230e9, 80e9, 8, 2,
       "vTrain", 100, "nodes of 8 A100 of 80 GB with four links of 200 Gb/s"},
      {"a100-80gb-jean-zay", "A100-80", "4 x 100 Gb/s Omni-Path a node", stated, 230e9, 43e9, 8, 2,
       "BLOOM (BigScience)", 50,
       "nodes of 8 A100 of 80 GB with four links of 100 Gb/s, over Omni-Path"},
      {"a100-80gb-selene", "A100-80", "8 x 200 Gb/s InfiniBand a node (Selene)", stated, 230e9,
       160e9, 8, 2, "Megatron-LM on Selene, and Megatron-Core's CI", 200,
       "nodes of 8 A100 of 80 GB with a link of 200 Gb/s each, over InfiniBand"},
      {"h100-mosaicml", "H100m", "8 x 400 Gb/s a node (MosaicML)", not_stated, 360e9, 320e9, 8, 1,
       "MosaicML llm-foundry", 400,
       "nodes as h100-infiniband's whose products have been measured to be slower"},
      {"h100-infiniband", "H100", "8 x 400 Gb/s InfiniBand a node", stated, 360e9, 330e9, 8, 1,
       "NVIDIA DGX Cloud recipes, Megatron-Bridge, Megatron-Core's CI", 400,
       "nodes of 8 H100 of 80 GB and 700 W with a link of 400 Gb/s each"},
      {"h100-96gb-500w", "H100-96", "8 x 400 Gb/s a node (torchtitan)", stated, 360e9, 330e9, 8, 1,
       "torchtitan", 400, "H100 with HBM2e, 96 GB, that are limited to 500 W"},
      {"h100-94gb", "H100-94", "8 x 400 Gb/s a node (torchtitan)", not_stated, 360e9, 330e9, 8, 1,
       "torchtitan", 400,
       "H100 of 94 GB; fitted to three rows of one model, so that little is known"},
      {"gb200", "GB200", "4 x 800 Gb/s a node", not_stated, 700e9, 330e9, 4, 1,
       "Megatron-Core's CI", 800,
       "GB200 with NVLink among 4 GPUs of a node only; fitted to two steps measured on 8 GPUs"},
      {"h200-infiniband", "H200", "8 x 400 Gb/s InfiniBand a node", "as fitted for h100-infiniband",
       360e9, 330e9, 8, 1, "", 400, "nodes of 8 H200 with a link of 400 Gb/s each"},
      {"b200-infiniband", "B200", "8 x 400 Gb/s InfiniBand a node",
       "data sheets: NVLink 5 with twice the bandwidth of H100's", 700e9, 330e9, 8, 1, "", 400,
       "nodes of 8 B200 with a link of 400 Gb/s each"},
      {"mi300x", "MI300X", "8 x 400 Gb/s a node",
       "data sheet: 7 links of 64 GB/s each way, 70 % assumed", 310e9, 330e9, 8, 1, "", 400,
       "nodes of 8 MI300X with a link of 400 Gb/s each"}};
  return all;
}

const Chip& chip(const std::string& name) {
  for (const Chip& one : all_chips())
    if (one.name == name) return one;
  throw Error("no chip " + name);
}

const Site& site(const std::string& name) {
  for (const Site& one : all_sites())
    if (one.name == name) return one;
  throw Error("no machine " + name);
}

}  // namespace ostrakon::published

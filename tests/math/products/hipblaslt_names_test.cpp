// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/math/products/hipblaslt_names.hpp>

namespace ostrakon::math {
namespace {

// Settings stand in names as in those that hipBLASLt prints, the start and the end of which are
// shortened.
TEST(HipBLASLtNames, TellWhetherRowsAreAddedAlike) {
  struct Case {
    const char* settings;
    bool alike;
  };
  for (const Case& one :
       {Case{"_GSU1_GSUAMB_K1_SU0_SUS0_SVW4", true}, Case{"_GSU2_GSUAMB_K1_SU0_SUS0_SVW4", false},
        Case{"_GSU16_GSUAMB_K1_SVW4", false}, Case{"_GSU0_GSUAMB_SK3_SKFTR0_SU0", false},
        Case{"_GSU1_GSUC0_SK0_SKFTR0_SKXCCM0_SU0", true},
        Case{"_GSU1_GSUAMB_SU32_SUM0_SUS256", true}, Case{"_GSU1_GSUAMB_SU32_SUS256", true},
        Case{"_GSU1_GSUAMB_SU32_SUM1_SUS512", false}, Case{"_GSU1_GSUAMB_SU4_SUM3_SUS128", false},
        Case{"_GSU1_GSUAMB_SU0_SUM3_SUS128", true}, Case{"_SUM1_SUS512_SU8", false},
        Case{"", true}}) {
    const std::string name =
        std::string("Cijk_Ailk_Bljk_HHS_BH_MT64x16x64_SN") + one.settings + "_WG64_4_1_WGM1";
    EXPECT_EQ(adds_alike_in_all_rows(name), one.alike) << name;
  }
  EXPECT_FALSE(adds_alike_in_all_rows("Cijk_SB_GSU4"));  // at the end
}

}  // namespace
}  // namespace ostrakon::math

// SPDX-License-Identifier: Apache-2.0
#include "runner/load/attention_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda/cuda_device.h"
#include "support/dense_model.h"
#include "support/test_data.h"

namespace heddle {
namespace {

TEST(AttentionBackendTest, TakesItsNamesAndThoseOfOthers) {
  for (const char* const name : {"auto", "plain"}) {
    EXPECT_EQ(to_string(*parse_attention_backend(name)), name);
  }
  EXPECT_EQ(*parse_attention_backend("fa3"), AttentionBackend::kAuto);
  EXPECT_EQ(*parse_attention_backend("torch_native"), AttentionBackend::kPlain);
}

TEST(AttentionBackendTest, NamesWhatThereIs) {
  EXPECT_THAT(parse_attention_backend("fast").status().message(),
              ::testing::HasSubstr("auto or plain"));
}

TEST(AttentionBackendTest, TellsTheGpu) {
  if (const auto opened = device::open_cuda_device(0); !opened.ok()) {
    GTEST_SKIP() << opened.status().message();
  }
  auto pass =
      runner::ForwardPass::create({.model_dir = testing::dense_model(), .max_step_tokens = 16},
                                  runner::ComputeDevice::open_cuda(0, /*exact=*/false).value());
  ASSERT_TRUE(pass.ok()) << pass.status().to_string();
  const auto& context = static_cast<const ops::CudaContext&>((*pass)->context());
  for (const auto backend : {AttentionBackend::kPlain, AttentionBackend::kAuto}) {
    runner::choose_attention(backend, /*page_size=*/16, **pass);
    EXPECT_EQ(context.plain_attention, backend == AttentionBackend::kPlain);
  }
}

}  // namespace
}  // namespace heddle

#include "build/template_job.h"

#include <gtest/gtest.h>

namespace caisson::build {
namespace {

TEST(TemplateJob, ComesBackAsItWas) {
  TemplateJob job;
  job.spec.image = "ubuntu:22.04";
  job.spec.steps = {
      {.type = "RUN", .args = {"echo \"a\nb\"", "root"}, .files_hash = "", .force = true},
      {.type = "COPY", .args = {"a", "b"}, .files_hash = std::string(64, 'a'), .force = false}};
  job.spec.start_command = "serve";
  job.spec.ready_command = "curl localhost";
  job.spec.force = true;
  job.spec.provision = Provision::kNo;
  job.spec.called = "tools";
  job.name = "template/t:b";
  job.team = "ours";
  job.archives = {std::string(64, 'a')};
  job.cpu_milli = 2000;
  job.memory = 1ull << 30;
  job.disk = 5ull << 20;
  job.login = image::Credentials{.user = "u", .secret = "s", .identity_token = ""};
  const std::string line = encode(job);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const TemplateJob again = parse_template_job(line).value();
  EXPECT_EQ(encode(again), line);
  EXPECT_EQ(again.spec.steps.at(0).args.at(0), "echo \"a\nb\"");
  EXPECT_TRUE(again.spec.steps.at(0).force);
  EXPECT_EQ(again.spec.provision, Provision::kNo);
  EXPECT_EQ(again.memory, 1ull << 30);
  EXPECT_EQ(again.disk, 5ull << 20);
  EXPECT_EQ(again.team, "ours");
  EXPECT_EQ(again.login, job.login);
}

TEST(TemplateJob, ListsAreSplitAtCommas) {
  EXPECT_TRUE(split_list("").empty());
  EXPECT_EQ(split_list("a"), std::vector<std::string>{"a"});
  EXPECT_EQ(split_list("a,b:1,,c,"), (std::vector<std::string>{"a", "b:1", "c"}));
}

TEST(TemplateJob, WhatItSaysComesBack) {
  for (const JobLine& line :
       {JobLine(JobLog{.level = JobLog::Level::kWarn, .step = "2", .text = "a\"\n"}),
        JobLine(JobDone{.image = std::string(64, 'b')}),
        JobLine(JobFailed{.step = "base", .text = "no"})}) {
    EXPECT_EQ(parse_job_line(encode(line)).value(), line);
  }
}

TEST(TemplateJob, WhatIsNoneIsRefused) {
  for (const char* line :
       {"", "{", "{}", "[]", R"({"image":"b"})", R"({"image":"a"})", R"({"image":"a","name":"b"})",
        R"({"image":"a","name":"b","team":"c","steps":{}})",
        R"({"image":"a","name":"b","steps":[]})"}) {
    EXPECT_FALSE(parse_template_job(line).has_value()) << line;
    EXPECT_FALSE(parse_job_line(line).has_value()) << line;
  }
}

}  // namespace
}  // namespace caisson::build

class Toolhold < Formula
  desc "Sandboxed tools for AI agents"
  homepage "@REPOSITORY@"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on :linux

  on_intel do
    url "@URL@/@x86_64@"
    sha256 "@x86_64 sum@"
  end

  on_arm do
    url "@URL@/@aarch64@"
    sha256 "@aarch64 sum@"
  end

  def install
    bin.install "bin/toolhold"
    lib.install "lib/toolhold"
    share.install Dir["share/*"]
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/toolhold --version")
  end
end

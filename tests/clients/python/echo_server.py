"""The echo of the benches, as an author of Python would write it."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("echo")


@server.tool()
def echo(message: str) -> str:
    """Says back what it is told."""
    return message


server.run("stdio")

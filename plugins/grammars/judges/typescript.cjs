// Lists what TypeScript and JavaScript sources define, as TypeScript's own parser reads them. Reads
// paths from stdin; writes a line `NAME<TAB>LINE<TAB>PATH` for each definition. Nothing is run.
"use strict";
const fs = require("fs");
const ts = require("typescript");

const isFunction = (node) =>
  node !== undefined &&
  (ts.isArrowFunction(node) || ts.isFunctionExpression(node) || ts.isClassExpression(node));

// The node with the name of what a node defines. Left out are variables and fields without a
// function, locals, parameters and imports, as in the comparison.
function nameOf(node) {
  if (
    ts.isFunctionDeclaration(node) ||
    ts.isFunctionExpression(node) ||
    ts.isClassDeclaration(node) ||
    ts.isClassExpression(node) ||
    ts.isMethodDeclaration(node) ||
    ts.isGetAccessor(node) ||
    ts.isSetAccessor(node) ||
    ts.isInterfaceDeclaration(node) ||
    ts.isTypeAliasDeclaration(node) ||
    ts.isEnumDeclaration(node) ||
    ts.isEnumMember(node) ||
    ts.isModuleDeclaration(node)
  ) {
    return node.name;
  }
  if (ts.isConstructorDeclaration(node)) {
    return node.getChildren().find((child) => child.kind === ts.SyntaxKind.ConstructorKeyword);
  }
  if (ts.isMethodSignature(node)) {
    return ts.isInterfaceDeclaration(node.parent) ? node.name : undefined;
  }
  if (
    ts.isVariableDeclaration(node) ||
    ts.isPropertyAssignment(node) ||
    ts.isPropertyDeclaration(node)
  ) {
    return isFunction(node.initializer) ? node.name : undefined;
  }
  const isAssignment =
    ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.EqualsToken;
  if (isAssignment && ts.isPropertyAccessExpression(node.left) && isFunction(node.right)) {
    return node.left.name;
  }
  return undefined;
}

for (const path of fs.readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const text = fs.readFileSync(path, "utf8");
  const kind = /\.[cm]?ts$/.test(path)
    ? ts.ScriptKind.TS
    : /\.tsx$/.test(path)
      ? ts.ScriptKind.TSX
      : ts.ScriptKind.JSX;
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true, kind);
  const visit = (node) => {
    const name = nameOf(node);
    if (name !== undefined) {
      const line = source.getLineAndCharacterOfPosition(name.getStart()).line + 1;
      process.stdout.write(`${name.text ?? name.getText()}\t${line}\t${path}\n`);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
}
